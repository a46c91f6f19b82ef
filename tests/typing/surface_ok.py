from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, assert_type

from queuert import (
    Attempt,
    BaseAttempt,
    Chain,
    Client,
    Debounce,
    DriverMissing,
    EntryJob,
    Handlers,
    JobError,
    JobRecord,
    Middleware,
    SyncClient,
    Throttle,
)
from queuert.testing import Running, SyncRunning
from usage_ok import ChargeCard, FetchRate, Pg, Receipt, ReserveStock


class Sweep(EntryJob[None], name="sweep"):
    day: str


async def wait_by_id(client: Client[Pg], chain: Chain[ReserveStock], chain_id: str) -> Receipt:
    assert_type(await client.wait(chain), Receipt)
    assert_type(await client.wait(chain, timeout=timedelta(seconds=5)), Receipt)
    assert_type(await client.wait(chain_id, FetchRate, timeout=30), Decimal)
    assert_type(await client.wait(chain, ReserveStock, timeout=30), Receipt)
    assert_type(await client.wait(chain_id, timeout=30), Any)
    assert_type(await client.wait(chain_id, "reserve-stock"), Any)
    await client.wait(chain_id, Sweep)
    return await client.wait(chain_id, ReserveStock)


async def read_by_type(client: Client[Pg], chain: Chain[ReserveStock], job: JobRecord[ChargeCard]) -> None:
    assert_type(await client.get_chain("id", ReserveStock), Chain[ReserveStock] | None)
    assert_type(await client.get_chain(chain), Chain[ReserveStock] | None)
    assert_type(await client.get_chain("id"), Chain[Any] | None)
    assert_type(await client.get_job("id", ChargeCard), JobRecord[ChargeCard] | None)
    assert_type(await client.get_job(job), JobRecord[ChargeCard] | None)
    assert_type(await client.get_job("id"), JobRecord[Any] | None)
    assert_type(await client.get_blockers(job), list[Chain[Any]] | None)


async def submit(client: Client[Pg]) -> Receipt:
    order = await client.submit(ReserveStock(order_id=7), dedup="order-7", after=timedelta(minutes=1))
    assert_type(order, Chain[ReserveStock])
    rates = await client.submit_many([FetchRate(currency="EUR"), FetchRate(currency="USD")])
    assert_type(rates, list[Chain[FetchRate]])
    return await client.wait(order)


def later_rate(waiting: FetchRate, new: FetchRate) -> FetchRate:
    return new if new.currency else waiting


async def debounce(client: Client[Pg]) -> None:
    order = await client.submit(ReserveStock(order_id=7), dedup=Debounce("order-7", wait=5, at_most=60))
    assert_type(order, Chain[ReserveStock])
    assert_type(order.replaced, bool)
    rate = FetchRate(currency="EUR")
    assert_type(await client.submit(rate, dedup=Throttle("rate", per=timedelta(hours=1))), Chain[FetchRate])
    merged = Debounce("rate", wait=5, at_most=60, merge=later_rate)
    assert_type(merged, Debounce[FetchRate])
    assert_type(await client.submit(rate, dedup=merged), Chain[FetchRate])
    typed = rate.set(dedup=Debounce("rate", wait=5, at_most=60, merge=lambda old, new: new if old.currency else old))
    assert_type(typed, FetchRate)


async def iterate(client: Client[Pg], yesterday: datetime) -> list[Decimal]:
    async for chain in client.iter_chains(ReserveStock, status="completed", created_before=yesterday):
        assert_type(chain, Chain[ReserveStock])
        assert_type(chain.output, Receipt)
    async for job in client.iter_jobs(ChargeCard, order="desc", page_size=1000):
        assert_type(job, JobRecord[ChargeCard])
        assert_type(job.job.amount, Decimal)
    assert_type(client.iter_chains("fetch-rate", root_only=True), AsyncIterator[Chain[Any]])
    assert_type(client.iter_jobs(), AsyncIterator[JobRecord[Any]])
    return [rate.output async for rate in client.iter_chains(FetchRate)]


async def change(client: Client[Pg], chain: Chain[ReserveStock], rates: list[Chain[FetchRate]]) -> None:
    async with client.transaction() as tx:
        assert_type(await client.trigger(tx, chain), list[Chain[Any]])
        await client.cancel(tx, rates, cascade=True)
        await client.cancel(tx, rates, cascade="dependents")
        await client.cancel(tx, rates, cascade="blockers")
        await client.delete(tx, rates, cascade="blockers")
        await client.retry(tx, "id")
        await client.delete(tx, ["id", "another"])


def without_a_loop(client: SyncClient[Any], chain_id: str) -> Receipt:
    assert_type(client.submit(FetchRate(currency="EUR")), Chain[FetchRate])
    assert_type(client.submit_many([FetchRate(currency="EUR")]), list[Chain[FetchRate]])
    assert_type(client.iter_chains(ReserveStock), Iterator[Chain[ReserveStock]])
    for job in client.iter_jobs(ChargeCard, status="failed"):
        assert_type(job.job, ChargeCard)
    return client.wait(chain_id, ReserveStock, timeout=5)


class Timed(Middleware):
    async def wrap_handler(self, attempt: BaseAttempt[Any], call_next: Callable[[], Awaitable[Any]]) -> Any:
        print(attempt.job_type, attempt.number, attempt.last_error)
        return await call_next()


class NotFound(Exception):
    pass


giving_up = Handlers[Pg](max_attempts=5, timeout_grace=1)


@giving_up.handles(FetchRate, give_up_on=(NotFound, "CARD_DECLINED", asyncio.CancelledError), timeout=5)
async def give_up(attempt: Attempt[FetchRate, Pg]) -> Decimal:
    assert_type(attempt.may_have_run, bool)
    raise JobError("GONE", "no such rate", retry=False)


async def contexts(client: Client[Pg], chain: Chain[FetchRate], either: Chain[FetchRate] | str) -> None:
    rate: Decimal = await client.wait(chain)
    text: str = await client.wait("id")
    either_rate: Decimal = await client.wait(either)
    assert_type(client.job_types, tuple[str, ...])
    print(rate, text, either_rate)


async def outputs(run: Running, sync: SyncRunning, chain: Chain[FetchRate]) -> None:
    assert_type(await run.output(chain), Decimal)
    assert_type(await run.output("id"), Any)
    assert_type(sync.output(chain), Decimal)
    assert_type(sync.output("id"), Any)


def missing(error: DriverMissing) -> ImportError:
    return error
