"""The jobs of an order. Plain functions run in threads, and may use the ORM as a view does."""

from __future__ import annotations

from django_orders.shop.models import Order
from queuert import EntryJob, Handlers, Job, SyncAttempt
from queuert_django import DjangoConnection


class ReserveStock(EntryJob[str, "ShipOrder"], name="reserve-stock"):
    """The chain's result is the parcel number."""

    order_id: int


class ShipOrder(Job[str], name="ship-order"):
    order_id: int


handlers = Handlers[DjangoConnection]()


@handlers.handles(ReserveStock)
def reserve(attempt: SyncAttempt[ReserveStock, DjangoConnection]) -> ShipOrder:
    with attempt.complete():  # an atomic block: both the order and the job change, or neither
        Order.objects.filter(id=attempt.job.order_id).update(state="reserved")
        return ShipOrder(order_id=attempt.job.order_id)


@handlers.handles(ShipOrder)
def ship(attempt: SyncAttempt[ShipOrder, DjangoConnection]) -> str:
    with attempt.complete():
        Order.objects.filter(id=attempt.job.order_id).update(state="shipped")
        return f"parcel-{attempt.job.order_id}"
