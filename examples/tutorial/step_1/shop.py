"""Step 1: an order and its receipt, in one transaction."""

from __future__ import annotations

import asyncio
import sqlite3

import queuert
from queuert import Attempt, Chain, Client, EntryJob, Handlers, Worker

Db = sqlite3.Connection
DATABASE = "sqlite:///shop.db"
TABLES = (
    "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, customer TEXT, cents INTEGER)",
    "CREATE TABLE IF NOT EXISTS receipts (order_id INTEGER PRIMARY KEY, text TEXT)",
)


class SendReceipt(EntryJob[str], name="send-receipt"):
    order_id: int


handlers = Handlers[Db]()


@handlers.handles(SendReceipt)
async def send_receipt(attempt: Attempt[SendReceipt, Db]) -> str:
    order_id = attempt.job.order_id
    async with attempt.complete() as tx:
        (customer,) = tx.connection.execute("SELECT customer FROM orders WHERE id = ?", (order_id,)).fetchone()
        text = f"Thank you, {customer}!"
        tx.connection.execute("INSERT INTO receipts VALUES (?, ?)", (order_id, text))
        return text


async def place_order(client: Client[Db], customer: str, cents: int) -> Chain[SendReceipt]:
    async with client.transaction() as tx:
        (order_id,) = tx.connection.execute(
            "INSERT INTO orders (customer, cents) VALUES (?, ?) RETURNING id", (customer, cents)
        ).fetchone()
        return await client.start(tx, SendReceipt(order_id=order_id))


async def main() -> None:
    async with queuert.connect(DATABASE, jobs=[SendReceipt]) as client:
        async with client.transaction() as tx:
            for table in TABLES:
                tx.connection.execute(table)
        chain = await place_order(client, "Ada", 950)
        async with Worker(client, handlers):
            print(await client.wait(chain, timeout=30))


if __name__ == "__main__":
    asyncio.run(main())
