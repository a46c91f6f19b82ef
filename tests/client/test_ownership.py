"""A client belongs to the event loop and the process that entered it; calls at once in a transaction take turns."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from tests.conformance.postgres_harness import database, empty
from tests.matrix.handles import begin_immediate
from tests.support.jobs import JOBS, After, Greet, Nothing

import queuert
import queuert.sqlalchemy
from queuert import Attempt, Client, ClientMisused, Handlers, TransactionMisused, Worker

PATIENCE = 60.0

URLS = {
    "memory": "memory://",
    "sqlite": "sqlite:///{path}",
    "aiosqlite": "sqlite+aiosqlite:///{path}",
    "psycopg": "postgresql+psycopg:{rest}",
    "asyncpg": "postgresql+asyncpg:{rest}",
    "sqlalchemy-psycopg": "postgresql+psycopg:{rest}",
    "sqlalchemy-asyncpg": "postgresql+asyncpg:{rest}",
    "sqlalchemy-aiosqlite": "sqlite+aiosqlite:///{path}",
}


@pytest.fixture(params=URLS)
def driver(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(driver: str, tmp_path: Path) -> str:
    if "postgresql" in URLS[driver]:
        empty()
        return URLS[driver].format(rest=database().partition(":")[2])
    return URLS[driver].format(path=tmp_path / "jobs.db")


@asynccontextmanager
async def connected(driver: str, url: str) -> AsyncGenerator[Client[Any]]:
    if not driver.startswith("sqlalchemy"):
        async with queuert.connect(url, jobs=JOBS) as client:
            yield client
        return
    engine = create_async_engine(url)
    if "sqlite" in url:
        begin_immediate(engine.sync_engine)
    async with queuert.sqlalchemy.connect(async_sessionmaker(engine), jobs=JOBS) as client:
        yield client
    await engine.dispose()


def elsewhere(call: Callable[[], Any]) -> BaseException | None:
    """Await something on another event loop, in another thread; the error that it raises, if any."""

    async def run() -> BaseException | None:
        try:
            async with asyncio.timeout(PATIENCE):
                await call()
        except Exception as error:
            return error
        return None

    return asyncio.run(run())


async def enter(block: Any) -> None:
    async with block:
        pass


async def greet(attempt: Attempt[Greet]) -> str:
    return attempt.job.who


# Event loops


async def test_another_loop_is_refused_at_once_and_the_owner_goes_on(driver: str, url: str) -> None:
    handlers = Handlers[Any]()
    handlers.handles(Greet)(greet)
    async with connected(driver, url) as client:
        chain = await client.submit(Greet())
        async with client.transaction() as tx:
            # The owner is in a transaction: a call that waited for it would wait for ever.
            calls: dict[str, Callable[[], Any]] = {
                "start": lambda: client.start(tx, Greet()),
                "read": lambda: client.get_chain(chain),
                "read in the transaction": lambda: client.get_chain(chain, tx=tx),
                "submit": lambda: client.submit(Greet()),
                "transaction": lambda: enter(client.transaction()),
                "savepoint": lambda: enter(client.savepoint(tx)),
                "after_commit": lambda: enter(client.after_commit(tx.connection)),
                "wait": lambda: client.wait(chain),
                "migrate": client.migrate,
                "worker": lambda: enter(Worker(client, handlers)),
                "close": client.close,
            }
            for name, call in calls.items():
                error = await asyncio.to_thread(elsewhere, call)
                assert isinstance(error, ClientMisused), (name, error)
                assert "outside of it: make a client for each event loop" in str(error)
            started = await client.start(tx, Greet())
        assert await client.get_chain(started) is not None
        assert await client.get_chain(chain) is not None


def test_one_loop_after_another(url: str, driver: str) -> None:
    if driver.startswith("sqlalchemy"):
        pytest.skip("the same client")
    client = queuert.connect(url, jobs=JOBS)

    async def enter_client() -> None:
        await client.__aenter__()
        await client.submit(Greet())

    async def use() -> None:
        with pytest.raises(ClientMisused):
            await client.submit(Greet())

    owner = asyncio.new_event_loop()
    owner.run_until_complete(enter_client())
    asyncio.run(use())
    owner.run_until_complete(client.submit(Greet()))
    owner.run_until_complete(client.close())
    owner.close()


def test_a_client_that_was_only_made_belongs_to_nobody(tmp_path: Path) -> None:
    client = queuert.connect(f"sqlite:///{tmp_path / 'jobs.db'}", jobs=JOBS)

    async def use() -> None:
        async with client:
            await client.submit(Greet())

    thread = threading.Thread(target=lambda: asyncio.run(use()))
    thread.start()
    thread.join()

    with pytest.raises(queuert.ClientClosed):
        asyncio.run(use())


# Forks

FORKS = """
import asyncio, gc, os, sys, warnings
import queuert
from queuert import ClientMisused
from tests.support.jobs import JOBS, Greet

warnings.simplefilter("ignore")  # about forks in programs with threads
kind, url = sys.argv[1:]

def fork(in_child):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            in_child()
        except ClientMisused as error:
            assert "forked child" in str(error) and "after the fork" in str(error), error
        else:
            sys.exit("not refused")
        gc.collect()
        sys.exit(7)  # with all that the interpreter does at its end
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

if kind == "async":
    loop = asyncio.new_event_loop()
    client = queuert.connect(url, jobs=JOBS)
    made_before = queuert.connect(url, jobs=JOBS)
    loop.run_until_complete(client.__aenter__())
    chain = loop.run_until_complete(client.submit(Greet()))
    loop.run_until_complete(client.get_chain(chain))

    def in_child():
        async def use():
            async with made_before:
                await made_before.submit(Greet())
            await client.close()  # does nothing
            await client.submit(Greet())
        asyncio.run(use())

    code = fork(in_child)
    loop.run_until_complete(client.get_chain(loop.run_until_complete(client.submit(Greet()))))
    loop.run_until_complete(client.close())
    loop.close()
else:
    made_before = queuert.connect_sync(url, jobs=JOBS)
    with queuert.connect_sync(url, jobs=JOBS) as client:
        chain = client.submit(Greet())

        def in_child():
            with made_before:
                made_before.submit(Greet())
            client.close()  # does nothing
            client.submit(Greet())

        with client.transaction() as tx:
            client.start(tx, Greet())
        code = fork(in_child)
        assert client.get_chain(client.submit(Greet())) is not None
print("parent goes on")
sys.exit(code)
"""


@pytest.mark.parametrize("flavour", ["async", "sync"])
def test_a_forked_child_is_refused_and_the_parent_goes_on(flavour: str, driver: str, url: str) -> None:
    if driver.startswith("sqlalchemy") or (flavour == "sync" and driver in ("asyncpg", "aiosqlite")):
        pytest.skip("the same client, or none")
    command = [sys.executable, "-c", FORKS, flavour, url]
    ended = subprocess.run(command, timeout=PATIENCE, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (7, "parent goes on\n", "")


# Calls at once in one transaction


async def test_calls_at_once_take_turns(driver: str, url: str) -> None:
    async with connected(driver, url) as client:
        async with client.transaction() as tx:
            chains = await asyncio.gather(*[client.start(tx, Greet(who=str(number))) for number in range(20)])
            more, found, listed = await asyncio.gather(
                client.start_many(tx, [After(greeting=chain) for chain in chains]),
                client.get_chain(chains[0], tx=tx),
                client.list_chains(Greet, limit=100, tx=tx),
            )
            assert found is not None
            assert {chain.id for chain in listed.items} == {chain.id for chain in chains}
            await asyncio.gather(*[client.cancel(tx, chain) for chain in more])
        stored = [await client.get_chain(chain) for chain in (*chains, *more)]
        statuses = [chain.status for chain in stored if chain is not None]
        assert statuses == ["pending"] * 20 + ["cancelled"] * 20


async def test_a_call_that_is_cancelled_while_it_waits_lets_the_next_one_through(driver: str, url: str) -> None:
    if driver == "memory":
        pytest.skip("nothing waits")
    async with connected(driver, url) as client:
        async with client.transaction() as tx:
            tasks = [asyncio.create_task(client.start(tx, Greet())) for _ in range(5)]
            await asyncio.sleep(0)
            tasks[2].cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            assert [type(each).__name__ for each in ended] == ["Chain", "Chain", "CancelledError", "Chain", "Chain"]
        assert len((await client.list_chains(Greet)).items) == 4


async def test_savepoints_at_once_are_refused_and_inner_ones_are_not(driver: str, url: str) -> None:
    async def in_savepoint(inside: asyncio.Event, leave: asyncio.Event) -> None:
        async with client.savepoint(tx):
            await client.start(tx, Greet())
            inside.set()
            await leave.wait()
            # Tasks that are started inside are inside, too.
            await asyncio.gather(enter(client.savepoint(tx)), client.start(tx, Greet()))
            raise ZeroDivisionError

    async with connected(driver, url) as client:
        async with client.transaction() as tx:
            inside, leave = asyncio.Event(), asyncio.Event()
            first = asyncio.create_task(in_savepoint(inside, leave))
            await asyncio.wait_for(inside.wait(), PATIENCE)
            with pytest.raises(TransactionMisused, match="another task has a savepoint open"):
                await enter(client.savepoint(tx))
            leave.set()
            with pytest.raises(ZeroDivisionError):
                await first
            async with client.savepoint(tx):
                kept = await client.start(tx, Nothing())
        assert [chain.id for chain in (await client.list_chains()).items] == [kept.id]
