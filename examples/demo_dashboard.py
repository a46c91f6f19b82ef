"""The order pipeline with steady traffic, and the dashboard beside it: `make demo DASHBOARD=1`.

Orders come in until Ctrl-C. Some labels cannot be printed, because a postcode was mistyped: find
them on the page, see why, correct the postcode, and watch them end.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from contextlib import suppress
from datetime import timedelta
from itertools import count

from rich.console import Console

import orders
import queuert
from database import Db, execute
from queuert import Attempt, Backoff, Client, EntryJob, Handlers, JobError, Limit, Schedules, Worker

PORT = 8000
EVERY = 1.0
"""Seconds between two baskets."""
PRINTERS = ("north", "south")
MISTYPED = 4
"""Every so many baskets have a postcode that was mistyped."""


class PrintLabel(EntryJob[str], name="print-label", limit=Limit("printers", by="printer", concurrency=2)):
    customer: str
    postcode: str
    printer: str


class CountStock(EntryJob[None], name="count-stock"):
    pass


handlers = Handlers[Db]()


schedules = Schedules()
schedules.every(timedelta(minutes=1), CountStock())


@handlers.handles(CountStock)
async def count_stock(attempt: Attempt[CountStock, Db]) -> None: ...


@handlers.handles(PrintLabel, max_attempts=2, backoff=Backoff(initial=0.5))
async def print_label(attempt: Attempt[PrintLabel, Db]) -> str:
    postcode = attempt.job.postcode
    if not (postcode.isdigit() and len(postcode) == 5):
        raise JobError("WRONG_POSTCODE", f"{postcode!r} is not a postcode: it has 5 digits")
    return f"label for {postcode}"


async def run(url: str, console: Console) -> None:
    """Until Ctrl-C."""
    async with queuert.connect(url, jobs=(*orders.JOBS, PrintLabel, CountStock)) as client:
        async with client.transaction() as tx:
            for table in orders.TABLES:
                await execute(tx, table)
        async with Worker(client, [orders.handlers, handlers], schedules=[schedules], concurrency=20, release="demo"):
            page = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "queuert", "dashboard", "--url", url, "--title", "shop", "--listen", _address(),
                stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
            try:
                assert page.stdout is not None
                where = (await page.stdout.readline()).decode().strip()
                console.print(
                    f"Orders come in. Look at them: [link={where}]{where}[/link]  (Ctrl-C ends it)", soft_wrap=True
                )
                async with asyncio.TaskGroup() as group:
                    group.create_task(take_orders(client))
                    group.create_task(approve_large_ones(client))
                    await page.wait()
            finally:
                with suppress(ProcessLookupError):
                    page.terminate()
                await page.wait()


def _address() -> str:
    """The usual port, or any other one if that is in use."""
    try:
        socket.create_server(("127.0.0.1", PORT)).close()
    except OSError:
        return "127.0.0.1:0"
    return f"127.0.0.1:{PORT}"


async def take_orders(client: Client[Db]) -> None:
    for number in count(1):
        basket = {number * 10 + each: 250_00 if number % 5 == 0 and each == 0 else 20_00 + each for each in range(3)}
        await orders.place_basket(client, f"customer-{number}", basket)
        postcode = "1O115" if number % MISTYPED == 0 else f"{10000 + number}"
        await client.submit(PrintLabel(customer=f"customer-{number}", postcode=postcode, printer=PRINTERS[number % 2]))
        await asyncio.sleep(EVERY)


async def approve_large_ones(client: Client[Db]) -> None:
    """A person needs a while for that."""
    while True:
        await asyncio.sleep(15)
        for chain_id in await orders.waiting_for_approval(client):
            await orders.approve(client, chain_id, who="Ada")
