"""A shop's orders as job chains. `demo.py` runs them; this is the part to copy from.

ReserveStock -> ChargeCard -> ShipOrder                     the usual order
ReserveStock -> ChargeCard -> ApproveOrder -> ShipOrder     a large order: a person approves it
SendInvoice, which waits for all orders of a basket, and starts AskForReview for later
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from database import Db, execute
from queuert import Attempt, Backoff, Chain, Client, EntryJob, Handlers, Job, SyncAttempt

TABLES = (
    "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT, cents INTEGER, state TEXT, approved_by TEXT)",
    "CREATE TABLE payments (order_id INTEGER PRIMARY KEY, payment TEXT)",
    "CREATE TABLE invoices (customer TEXT, cents INTEGER, parcels INTEGER)",
    "CREATE TABLE letters (customer TEXT)",
)
LARGE = 100_00
REVIEW_AFTER = timedelta(seconds=1)  # two weeks in a real shop


# The job types. The class is the declaration: its fields are the input. `Job[Returns, Next]` names
# the result of the whole chain and the next job.


@dataclass(frozen=True)
class Parcel:
    """The result of every order's chain."""

    order_id: int
    cents: int
    tracking: str


class ReserveStock(EntryJob[Parcel, "ChargeCard"], name="reserve-stock"):
    order_id: int


class ChargeCard(Job[Parcel, "ApproveOrder | ShipOrder"], name="charge-card"):
    order_id: int


class ApproveOrder(Job[Parcel, "ShipOrder"], name="approve-order"):
    """It has no handler, so no worker takes it. It waits until `approve` settles it."""

    order_id: int
    cents: int


class ShipOrder(Job[Parcel], name="ship-order"):
    order_id: int
    cents: int


class SendInvoice(EntryJob[int], name="send-invoice"):
    """Fan-in: it runs when all these chains are complete, and reads their results."""

    customer: str
    orders: list[Chain[ReserveStock]]


class AskForReview(EntryJob[None], name="ask-for-review"):
    customer: str


JOBS = (ReserveStock, SendInvoice, AskForReview)  # the client finds the jobs that they continue with


# Starting: the rows and the jobs are in one transaction.


async def place_basket(
    client: Client[Db], customer: str, basket: dict[int, int]
) -> tuple[list[Chain[ReserveStock]], Chain[SendInvoice]]:
    """Store a customer's orders (id -> cents).

    Start their chains, and the invoice that waits for them.
    """
    async with client.transaction() as tx:
        for order_id, cents in basket.items():
            await execute(
                tx,
                "INSERT INTO orders (id, customer, cents, state) VALUES (?, ?, ?, 'placed')",
                order_id, customer, cents,
            )  # fmt: skip
        orders = await client.start_many(tx, [ReserveStock(order_id=order_id) for order_id in basket])
        invoice = await client.start(tx, SendInvoice(customer=customer, orders=orders))
    return orders, invoice


# Handlers. What they write in complete() commits together with the completion of the job: once, or
# not at all.

handlers = Handlers[Db]()


@handlers.handles(ReserveStock)
async def reserve(attempt: Attempt[ReserveStock, Db]) -> ChargeCard:
    order_id = attempt.job.order_id
    async with attempt.complete() as tx:  # opened before the first await: one short transaction for all of it
        await execute(tx, "UPDATE orders SET state = 'reserved' WHERE id = ?", order_id)
        return ChargeCard(order_id=order_id)


@handlers.handles(ChargeCard, max_attempts=5, timeout=10, backoff=Backoff(initial=0.3))
async def charge(attempt: Attempt[ChargeCard, Db]) -> ApproveOrder | ShipOrder:
    order_id = attempt.job.order_id
    async with attempt.prepare("staged") as tx:
        ((cents,),) = await execute(tx, "SELECT cents FROM orders WHERE id = ?", order_id)
    # No transaction is open here. The call may happen more than once (after an error or a crash).
    # So it has a key that stays the same: the job's id. (If this job continued with itself, each
    # would have another id: then use the order's.)
    payment = await gateway.charge(key=attempt.job_id, cents=cents)
    async with attempt.complete() as tx:
        await execute(tx, "INSERT INTO payments VALUES (?, ?)", order_id, payment)
        await execute(tx, "UPDATE orders SET state = 'paid' WHERE id = ?", order_id)
        if cents > LARGE:
            return ApproveOrder(order_id=order_id, cents=cents)
        return ShipOrder(order_id=order_id, cents=cents)


@handlers.handles(ShipOrder)
def ship(attempt: SyncAttempt[ShipOrder]) -> Parcel:
    """A plain `def` runs in a thread. Use it for libraries that block."""
    job = attempt.job
    return Parcel(job.order_id, job.cents, tracking=f"P{job.order_id:06}")


@handlers.handles(SendInvoice)
async def send_invoice(attempt: Attempt[SendInvoice, Db]) -> int:
    customer = attempt.job.customer
    parcels = [order.output for order in attempt.job.orders]  # typed: list[Parcel]
    total = sum(parcel.cents for parcel in parcels)
    async with attempt.complete() as tx:
        await execute(tx, "INSERT INTO invoices VALUES (?, ?, ?)", customer, total, len(parcels))
        await attempt.client.start(tx, AskForReview(customer=customer), after=REVIEW_AFTER)
        return total


@handlers.handles(AskForReview)
async def ask_for_review(attempt: Attempt[AskForReview, Db]) -> None:
    async with attempt.complete() as tx:
        await execute(tx, "INSERT INTO letters VALUES (?)", attempt.job.customer)


# Without a worker: a person completes the job, for example on a web page.


async def waiting_for_approval(client: Client[Db]) -> Sequence[str]:
    page = await client.list_jobs(ApproveOrder, status="pending")
    return [job.chain_id for job in page.items]


async def approve(client: Client[Db], chain_id: str, who: str) -> None:
    async with client.transaction() as tx, client.take_over(tx, chain_id, ApproveOrder) as current:
        order = current.job
        await execute(tx, "UPDATE orders SET approved_by = ? WHERE id = ?", who, order.order_id)
        await current.settle(ShipOrder(order_id=order.order_id, cents=order.cents))


# Other services.


class Gateway:
    """A payment service.

    For every tenth card its answer is lost: the card was charged, but the caller gets an error.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.charged: dict[str, str] = {}

    async def charge(self, key: str, cents: int) -> str:
        self.calls += 1
        await asyncio.sleep(0.01)
        if key in self.charged:
            return self.charged[key]
        self.charged[key] = f"pay-{len(self.charged) + 1}-{cents}"
        if len(self.charged) % 10 == 0:
            raise ConnectionError("the payment service does not answer")
        return self.charged[key]


gateway = Gateway()
