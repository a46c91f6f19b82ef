"""Job types of a small shop, as a user's module holds them: all kinds of references, and names not yet defined."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from tests.jobs import shop_other
from tests.jobs.shop_other import Imported

from queuert.jobs import Chain, EntryJob, Job, JobTypes


@dataclass(frozen=True)
class Receipt:
    payment_id: str


class ReserveStock(EntryJob[Receipt, "ChargeCard"], name="reserve-stock"):
    order_id: int


class ChargeCard(Job[Receipt, "ChargeCard | SendReceipt"], name="charge-card", queue="payments"):
    order_id: int
    amount: Decimal


class SendReceipt(Job[Receipt], name="send-receipt"):
    order_id: int
    payment_id: str


class FetchRate(EntryJob[Decimal], name="fetch-rate"):
    currency: str


class CloseBooks(EntryJob[int], name="close-books"):
    day: str
    order: Chain[ReserveStock]
    rates: list[Chain[FetchRate]]


class Elsewhere(EntryJob[None, "shop_other.Imported"], name="elsewhere"):
    pass


ORDERS = JobTypes([ReserveStock, FetchRate])

__all__ = ["Imported", "shop_other"]
