"""Job types for tests: a chain with a loop, a job that waits for others, and one that says little."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from queuert.jobs import Chain, EntryJob, Job


@dataclass(frozen=True)
class Receipt:
    payment_id: str


class Greet(EntryJob[str], name="greet"):
    who: str = "you"


class Reserve(EntryJob[Receipt, "Charge"], name="reserve"):
    order_id: int


class Charge(Job[Receipt, "Charge | Send"], name="charge"):
    order_id: int
    amount: Decimal


class Send(Job[Receipt], name="send"):
    order_id: int
    payment_id: str


class Rate(EntryJob[float], name="rate"):
    currency: str = "EUR"


class Close(EntryJob[int, "Report"], name="close"):
    """Waits for an order, and for any number of rates."""

    day: str
    order: Chain[Reserve]
    rates: list[Chain[Rate]]


class Report(Job[int], name="report"):
    day: str
    rate: Chain[Rate]


class After(EntryJob[None], name="after"):
    """Waits for one greeting."""

    greeting: Chain[Greet]


class Nothing(EntryJob[None], name="nothing"):
    pass


JOBS = [Greet, Reserve, Rate, Close, After, Nothing]
"""Charge, Send and Report are pulled in."""
