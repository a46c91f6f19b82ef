"""An order pipeline, start to finish, in a few seconds.

`make demo` runs it on SQLite, `make demo POSTGRES=1` on PostgreSQL. The SQLite file is left in a
temporary directory, to be looked at. `make demo DASHBOARD=1` goes on, with a web page beside it. The
pipeline itself is in `orders.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import shutil
import sys
import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import demo_dashboard
import orders
import queuert
from database import Db, execute
from orders import AskForReview, ReserveStock, SendInvoice
from queuert import Chain, Client, JobRecord, Worker

ORDERS_PER_CUSTOMER = 5


@contextmanager
def sqlite_file() -> Generator[str]:
    """The URL of a new, empty database. It is kept, unless the demo fails."""
    directory = mkdtemp(prefix="queuert-demo-")
    try:
        yield f"sqlite:///{Path(directory) / 'shop.db'}"
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


async def main(order_count: int, console: Console, *, postgres: bool) -> None:
    where = "one PostgreSQL database" if postgres else "one SQLite file"
    console.print(f"An order pipeline with {order_count} orders. Jobs and orders share {where}.")
    with embedded() if postgres else sqlite_file() as url:
        async with queuert.connect(url, jobs=orders.JOBS) as client:
            await create_tables(client)
            await show_atomicity(client, console)
            started = time.monotonic()
            order_chains, invoices = await place_orders(client, order_count)
            with progress_bars(console) as progress:
                async with Worker(client, orders.handlers, concurrency=20):
                    await watch_pipeline(client, order_chains, invoices, progress)
            await show_summary(client, console, time.monotonic() - started)
            left = await client.submit(AskForReview(customer="customer-1"), after=timedelta(days=1))
    if postgres:
        console.print("The server has ended, and its data is deleted. `make demo` leaves a file to look at.")
    else:
        show_what_is_left(console, url, left.id)


def show_what_is_left(console: Console, url: str, chain_id: str) -> None:
    """Not wrapped: the lines are to be copied."""
    script = Path(sys.executable).with_name("queuert")
    command = str(script) if script.exists() else f"{sys.executable} -m queuert"
    shown = command.removeprefix(f"{Path.cwd()}/")
    console.print("One more follow-up is due tomorrow. Look at it, and at all that is stored:")
    for words in (f"why {chain_id}", "ls", "status"):
        console.print(f"  {shown} {words} --url {url}", soft_wrap=True)


def embedded() -> AbstractContextManager[str]:
    from embedded_postgres import embedded_postgres  # psycopg need not be installed

    return embedded_postgres()


async def create_tables(client: Client[Db]) -> None:
    async with client.transaction() as tx:
        for table in orders.TABLES:
            await execute(tx, table)


async def show_atomicity(client: Client[Db], console: Console) -> None:
    """An error after the order is stored and its chain started: neither is kept."""
    with suppress(RuntimeError):
        async with client.transaction() as tx:
            await execute(tx, "INSERT INTO orders (id, customer, cents) VALUES (0, 'nobody', 1)")
            await client.start(tx, ReserveStock(order_id=0))
            raise RuntimeError("the web request fails here")
    stored = await count(client, "orders")
    started = len((await client.list_chains()).items)
    console.print(f"A transaction was rolled back: {stored} orders stored, {started} chains started.")
    console.print("Now orders are placed, and a worker with 20 slots begins ...\n")


async def place_orders(
    client: Client[Db], order_count: int
) -> tuple[list[Chain[ReserveStock]], list[Chain[SendInvoice]]]:
    order_chains: list[Chain[ReserveStock]] = []
    invoices: list[Chain[SendInvoice]] = []
    for first in range(1, order_count + 1, ORDERS_PER_CUSTOMER):
        numbers = range(first, min(first + ORDERS_PER_CUSTOMER, order_count + 1))
        # Every 25th order is a large one.
        basket = {number: 250_00 if number % 25 == 0 else 20_00 + number for number in numbers}
        placed, invoice = await orders.place_basket(client, f"customer-{first}", basket)
        order_chains += placed
        invoices.append(invoice)
    return order_chains, invoices


async def watch_pipeline(
    client: Client[Db],
    order_chains: list[Chain[ReserveStock]],
    invoices: list[Chain[SendInvoice]],
    progress: Progress,
) -> None:
    async with asyncio.TaskGroup() as group:  # an error in one task ends all of them
        manager = group.create_task(approve_what_waits(client))
        await asyncio.gather(
            watch(client, order_chains, progress, "orders"),
            watch(client, invoices, progress, "invoices"),
        )
        manager.cancel()
    reviews = await client.list_chains(AskForReview, limit=1000)
    await watch(client, reviews.items, progress, "follow-ups")


async def watch(client: Client[Db], chains: Sequence[Chain[Any]], progress: Progress, what: str) -> None:
    """Wait for chains, any number at once, and move a bar for each."""
    bar = progress.add_task(what, total=len(chains))

    async def watch_one(chain: Chain[Any]) -> None:
        await client.wait(chain, timeout=60)
        progress.advance(bar)

    async with asyncio.TaskGroup() as group:
        for chain in chains:
            group.create_task(watch_one(chain))


async def approve_what_waits(client: Client[Db]) -> None:
    """The person who approves large orders."""
    while True:
        for chain_id in await orders.waiting_for_approval(client):
            await orders.approve(client, chain_id, who="Ada")
        await asyncio.sleep(0.1)


def progress_bars(console: Console) -> Progress:
    columns = (TextColumn("{task.description:>12}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal)


async def show_summary(client: Client[Db], console: Console, seconds: float) -> None:
    jobs = await all_jobs(client)
    # A job that was continued is "completed" long before its chain is. A chain has the status of
    # its last job.
    last = {job.chain_id: job for job in jobs}
    chains = Counter((job.chain_type, job.status) for job in last.values())
    table = Table(title="Chains")
    for heading in ("chain type", "status"):
        table.add_column(heading)
    for heading in ("chains", "jobs", "attempts", "retries"):
        table.add_column(heading, justify="right")
    for (chain_type, status), chain_count in sorted(chains.items()):
        members = [job for job in jobs if job.chain_type == chain_type and last[job.chain_id].status == status]
        retries = sum(max(0, job.attempt_number - 1) for job in members)
        attempts = sum(job.attempt_number for job in members)
        table.add_row(chain_type, status, *map(str, (chain_count, len(members), attempts, retries)))
    console.print(table)

    by_hand = sum(job.status == "completed" and job.completed_by is None for job in jobs)
    payments, invoices, letters = [await count(client, name) for name in ("payments", "invoices", "letters")]
    gateway = orders.gateway
    console.print(f"""
{len(jobs)} jobs in {len(last)} chains took {seconds:.1f} s. What they showed:
- Retry: {gateway.calls} calls to the payment service, {gateway.calls - payments} failed and were repeated;
  {len(gateway.charged)} cards charged, {payments} payments recorded.
- Fan-in: {invoices} invoices, each written when the last order of its basket was done.
- Without a worker: {by_hand} large orders approved by hand, with take_over.
- Schedule: {letters} follow-ups, {orders.REVIEW_AFTER.total_seconds():g} s after the invoice.
- Transactions: the shop's rows and the jobs were committed together, each time.
""")


async def all_jobs(client: Client[Db]) -> list[JobRecord[Any]]:
    page = await client.list_jobs(limit=1000)
    jobs = list(page.items)
    while page.next_cursor is not None:
        page = await client.list_jobs(limit=1000, cursor=page.next_cursor)
        jobs += page.items
    return jobs


async def count(client: Client[Db], table: str) -> int:
    async with client.transaction() as tx:
        ((number,),) = await execute(tx, f"SELECT count(*) FROM {table}")
        return int(number)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run an order pipeline, and show what happened.")
    parser.add_argument("--orders", type=int, default=300, help="how many orders (1 to 5000, default: %(default)s)")
    parser.add_argument("--postgres", action="store_true", help="use a new PostgreSQL server instead of SQLite")
    parser.add_argument("--dashboard", action="store_true", help="go on until Ctrl-C, and show it on a web page")
    given = parser.parse_args()
    if not 1 <= given.orders <= 5000:
        parser.error("--orders must be from 1 to 5000")
    return given


if __name__ == "__main__":
    # Failed attempts are logged as warnings, with tracebacks. Here they are intended, and counted
    # in the table.
    logging.getLogger("queuert").setLevel(logging.ERROR)
    try:
        given = arguments()
        console = Console(highlight=False)
        if given.dashboard:
            with embedded() if given.postgres else sqlite_file() as url:
                asyncio.run(demo_dashboard.run(url, console))
        else:
            asyncio.run(main(given.orders, console, postgres=given.postgres))
    except KeyboardInterrupt:
        sys.exit(130)
