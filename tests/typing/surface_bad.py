from __future__ import annotations

from typing import Any

from queuert import Chain, Client, Debounce, Handlers, SyncClient, Throttle
from queuert.testing import Running, SyncRunning
from usage_ok import ChargeCard, FetchRate, Pg, ReserveStock, SendReceipt


async def wrong_waits(client: Client[Pg], chain: Chain[ReserveStock]) -> None:
    await client.wait(FetchRate, "id")  # E: the type comes last
    await client.wait("id", int)  # E: not a job type
    await client.wait(7)  # E: neither a chain nor an id
    print(await client.wait("id", FetchRate) + "x")  # E: wrong result type
    print(await client.wait(chain, ReserveStock) + 1)  # E: wrong result type


async def wrong_reads(client: Client[Pg]) -> None:
    await client.get_chain(ReserveStock, "id")  # E: the type comes last
    await client.get_job(ChargeCard, "id")  # E: the type comes last
    await client.history(ChargeCard, 3600)  # E: since is a keyword
    for blocker in await client.get_blockers("id"):  # E: None if there is no such job
        print(blocker)


async def wrong_submits(client: Client[Pg]) -> None:
    await client.submit(ReserveStock())  # E: missing input field
    await client.submit(SendReceipt(order_id=7, payment_id="p"))  # E: not an entry job
    await client.submit(ReserveStock(order_id=7), prio=1)  # E: no such option
    await client.submit(ReserveStock(order_id=7), ReserveStock(order_id=8))  # E: one job
    await client.submit_many(FetchRate(currency="EUR"))  # E: not a list
    await client.submit_many([SendReceipt(order_id=7, payment_id="p")])  # E: not entry jobs
    wrong: Chain[FetchRate] = await client.submit(ReserveStock(order_id=7))  # E: another type
    print(wrong)


async def wrong_debounces(client: Client[Pg]) -> None:
    await client.submit(FetchRate(currency="EUR"), dedup=Debounce("rate", wait=5))  # E: at_most is missing
    await client.submit(FetchRate(currency="EUR"), dedup=Debounce("rate", 5, 60))  # E: keywords
    await client.submit(FetchRate(currency="EUR"), dedup=Throttle("rate"))  # E: per is missing
    print(Debounce("rate", wait=5, at_most=60, keep="newest"))  # E: first or last
    order = Debounce("rate", wait=5, at_most=60, merge=later_order)
    FetchRate(currency="EUR").set(dedup=order)  # E: merges jobs of another type


def later_order(waiting: ReserveStock, new: ReserveStock) -> ReserveStock:
    return new if new.order_id else waiting


async def wrong_iterations(client: Client[Pg]) -> None:
    async for chain in client.iter_chains(ReserveStock):
        chain.output.missing  # E: no such field of the output
    async for job in client.iter_jobs(ChargeCard):
        job.job.missing  # E: no such field of the job
    async for _ in client.iter_chains(status="done"):  # E: no such status
        pass
    async for _ in client.iter_chains(cursor="x"):  # E: an iteration has no cursor
        pass
    for _ in client.iter_jobs():  # E: needs async for
        pass


async def wrong_changes(client: Client[Pg], tx: Any, chain: Chain[ReserveStock]) -> None:
    await client.cancel(tx, chain, chain)  # E: several are a list
    await client.cancel(tx, [chain], True)  # E: cascade is a keyword


def wrong_errors_to_give_up_on(handlers: Handlers[Pg]) -> None:
    handlers.handles(FetchRate, give_up_on=ValueError)  # E: not a tuple
    handlers.handles(FetchRate, give_up_on=(ValueError("an instance"),))  # E: not a class
    handlers.handles(FetchRate, give_up_on=(7,))  # E: neither a class nor a code
    handlers.handles(FetchRate, give_up_on=(int,))  # E: not an exception


def wrong_without_a_loop(client: SyncClient[Any]) -> None:
    async_chain: Chain[FetchRate] = client.submit(ReserveStock(order_id=7))  # E: another type
    print(async_chain, client.wait("id", FetchRate) + "x")  # E: wrong result type


async def wrong_contexts(client: Client[Pg], chain: Chain[FetchRate], either: Chain[FetchRate] | str) -> None:
    a: str = await client.wait(chain)  # E: the variable does not choose the type
    b: str = await client.wait(chain, timeout=5)  # E: the same with a timeout
    c: str = await client.wait(chain, "fetch-rate")  # E: the chain has the type, not the name
    d: str = await client.wait(either)  # E: it may be the chain
    e: Chain[ReserveStock] | None = await client.get_chain(chain)  # E: another type
    print(a, b, c, d, e)


def wrong_contexts_without_a_loop(client: SyncClient[Any], chain: Chain[FetchRate]) -> None:
    a: str = client.wait(chain)  # E: the variable does not choose the type
    print(a)


async def wrong_outputs(run: Running, sync: SyncRunning, chain: Chain[FetchRate]) -> None:
    a: str = await run.output(chain)  # E: the variable does not choose the type
    b: str = sync.output(chain)  # E: the same without a loop
    print(a, b)
