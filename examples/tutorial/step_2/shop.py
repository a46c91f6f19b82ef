"""Step 2: a chain. The card is charged between the order and its receipt."""

from __future__ import annotations

import asyncio
import sqlite3
from dataclasses import dataclass

import queuert
from queuert import Attempt, Backoff, Chain, Client, EntryJob, Handlers, Job, JobError, Worker

Db = sqlite3.Connection
DATABASE = "sqlite:///shop.db"
TABLES = (
    "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, customer TEXT, cents INTEGER, payment TEXT)",
    "CREATE TABLE IF NOT EXISTS receipts (order_id INTEGER PRIMARY KEY, text TEXT)",
)


@dataclass(frozen=True)
class Receipt:
    order_id: int
    cents: int
    text: str


class ChargeCard(EntryJob[Receipt, "SendReceipt"], name="charge-card"):
    order_id: int


class SendReceipt(Job[Receipt], name="send-receipt"):
    order_id: int
    payment: str


class Bank:
    """Another system: it is slow, it fails at times, and it must not be asked twice for one order."""

    def __init__(self) -> None:
        self.payments: dict[str, str] = {}
        self.calls = 0

    async def charge(self, cents: int, *, key: str) -> str:
        self.calls += 1
        await asyncio.sleep(0.01)
        if self.calls == 1:
            raise ConnectionError("the bank does not answer")
        return self.payments.setdefault(key, f"payment-{len(self.payments) + 1} of {cents} cents")


bank = Bank()
handlers = Handlers[Db](backoff=Backoff(initial=0.1), max_attempts=5)


@handlers.handles(ChargeCard, give_up_on=("CARD_DECLINED",))
async def charge_card(attempt: Attempt[ChargeCard, Db]) -> SendReceipt:
    order_id = attempt.job.order_id
    async with attempt.prepare("staged") as tx:  # read, in a short transaction
        (cents,) = tx.connection.execute("SELECT cents FROM orders WHERE id = ?", (order_id,)).fetchone()
    if cents <= 0:
        raise JobError("CARD_DECLINED", f"order {order_id} has no price")
    payment = await bank.charge(cents, key=f"order-{order_id}")  # slow, and no transaction is open
    async with attempt.complete() as tx:  # write, together with the end of the job
        tx.connection.execute("UPDATE orders SET payment = ? WHERE id = ?", (payment, order_id))
        return SendReceipt(order_id=order_id, payment=payment)


@handlers.handles(SendReceipt)
async def send_receipt(attempt: Attempt[SendReceipt, Db]) -> Receipt:
    order_id = attempt.job.order_id
    async with attempt.complete() as tx:
        customer, cents = tx.connection.execute(
            "SELECT customer, cents FROM orders WHERE id = ?", (order_id,)
        ).fetchone()
        text = f"Thank you, {customer}! {attempt.job.payment}"
        tx.connection.execute("INSERT INTO receipts VALUES (?, ?)", (order_id, text))
        return Receipt(order_id, cents, text)


async def place_order(client: Client[Db], customer: str, cents: int) -> Chain[ChargeCard]:
    async with client.transaction() as tx:
        (order_id,) = tx.connection.execute(
            "INSERT INTO orders (customer, cents) VALUES (?, ?) RETURNING id", (customer, cents)
        ).fetchone()
        return await client.start(tx, ChargeCard(order_id=order_id))


async def main() -> None:
    async with queuert.connect(DATABASE, jobs=[ChargeCard]) as client:
        async with client.transaction() as tx:
            for table in TABLES:
                tx.connection.execute(table)
        chain = await place_order(client, "Ada", 950)
        async with Worker(client, handlers):
            receipt = await client.wait(chain, timeout=30)
        print(receipt.text)


if __name__ == "__main__":
    asyncio.run(main())
