"""Jobs as an app of a Django project has them."""

from __future__ import annotations

import threading

from tests.django.shop.models import Order

from queuert import Attempt, Backoff, EntryJob, Handlers, Job, Limit, SyncAttempt
from queuert_django import CloseOldConnections, DjangoConnection, get_client


class ReserveStock(EntryJob[str, "ChargeCard"], name="reserve-stock"):
    number: int


class ChargeCard(Job[str], name="charge-card"):
    number: int


class Remind(EntryJob[None], name="remind"):
    number: int


class Call(EntryJob[int], name="call", limit=Limit(by="customer", concurrency=1)):
    customer: str


class Audit(EntryJob[int], name="audit"):
    """Counts orders in an async handler."""


handlers = Handlers[DjangoConnection](middleware=[CloseOldConnections()])

threads: list[threading.Thread] = []
"""Where plain handlers ran."""


@handlers.handles(ReserveStock)
def reserve(attempt: SyncAttempt[ReserveStock, DjangoConnection]) -> ChargeCard:
    with attempt.prepare() as tx:
        assert Order.objects.using(tx.connection.alias).filter(number=attempt.job.number).exists()
    return ChargeCard(number=attempt.job.number)


@handlers.handles(ChargeCard, backoff=Backoff(initial=0.001))
def charge(attempt: SyncAttempt[ChargeCard, DjangoConnection]) -> str:
    threads.append(threading.current_thread())
    number = attempt.job.number
    with attempt.complete() as tx:
        orders = Order.objects.using(tx.connection.alias)
        orders.filter(number=number).update(paid=True)
        orders.create(number=-number, paid=True)  # a second time, this would violate a constraint
        get_client(tx.connection.alias).start(tx.connection, Remind(number=number), after=3600)
        if attempt.number == 1:
            raise ValueError("the first time, it fails")
        return f"paid {number}"


@handlers.handles(Audit)
async def audit(attempt: Attempt[Audit, DjangoConnection]) -> int:
    count: int = await Order.objects.acount()
    return count


@handlers.handles(Remind)
def remind(attempt: SyncAttempt[Remind, DjangoConnection]) -> None:
    pass


@handlers.handles(Call)
def call(attempt: SyncAttempt[Call, DjangoConnection]) -> int:
    return len(attempt.job.customer)
