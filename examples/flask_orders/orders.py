"""The orders and their jobs, shared by the web process and the worker process."""

from __future__ import annotations

import os

from sqlalchemy import Engine, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from queuert import EntryJob, Handlers, Job, SyncAttempt

DATABASE_URL = os.environ.get("DATABASE_URL", "sqlite:///orders.db")


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    product: Mapped[str]
    state: Mapped[str] = mapped_column(default="new")


class ReserveStock(EntryJob[str, "ShipOrder"], name="reserve-stock"):
    """The chain's result is the parcel number."""

    order_id: int


class ShipOrder(Job[str], name="ship-order"):
    order_id: int


handlers = Handlers()


@handlers.handles(ReserveStock)
def reserve(attempt: SyncAttempt[ReserveStock, Session]) -> ShipOrder:
    with attempt.complete() as tx:
        order = tx.connection.get_one(Order, attempt.job.order_id)
        order.state = "reserved"
        return ShipOrder(order_id=order.id)


@handlers.handles(ShipOrder)
def ship(attempt: SyncAttempt[ShipOrder, Session]) -> str:
    with attempt.complete() as tx:
        order = tx.connection.get_one(Order, attempt.job.order_id)
        order.state = "shipped"
        return f"parcel-{order.id}"


def make_engine() -> Engine:
    engine = create_engine(DATABASE_URL)
    Base.metadata.create_all(engine)
    return engine
