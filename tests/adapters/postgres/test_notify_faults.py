"""Lost listeners come back, with each driver; a server that is down fails no commit."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.adapters.postgres.drivers import Watcher
from tests.adapters.postgres.ears import ASYNC, LISTENER, kill_listener, listener_tasks, silence
from tests.behaviour.steps import eventually
from tests.support.ears import Ear
from tests.support.jobs import Greet
from tests.support.postgres import PostgresServer

import queuert
from queuert import Attempt, Chain, Client, EntryJob, Handlers, StorageUnavailable, Worker
from queuert.adapters.broadcast import listener
from queuert.ports.notify import MISSED, TOPICS

Make = Callable[..., Any]

SCHEMES = {"psycopg": "postgresql+psycopg", "asyncpg": "postgresql+asyncpg"}


@pytest.fixture(params=ASYNC)
def make(request: pytest.FixtureRequest) -> Make:
    return ASYNC[request.param]


@pytest.fixture(params=SCHEMES)
def scheme(request: pytest.FixtureRequest) -> str:
    return SCHEMES[request.param]


def with_scheme(url: str, scheme: str) -> str:
    return f"{scheme}://{url.partition('://')[2]}"


class Echo(EntryJob[str], name="echo"):
    text: str


def echoing() -> Handlers[Any]:
    handlers = Handlers[Any]()

    @handlers.handles(Echo)
    async def echo(attempt: Attempt[Echo]) -> str:
        return attempt.job.text

    return handlers


@pytest.fixture
def database_url(migrated_url: str) -> str:
    return migrated_url


async def test_a_lost_listener_comes_back(make: Make, database_url: str, watch: Watcher) -> None:
    adapter = make(database_url)
    ears = [Ear() for _ in TOPICS]
    for topic, ear in zip(TOPICS, ears, strict=True):
        await adapter.listen(topic, ear)
    for round_number in range(3):
        kill_listener(watch)
        for ear in ears:
            await ear.until(MISSED, times=round_number + 1)
        for topic, ear in zip(TOPICS, ears, strict=True):
            await adapter.publish(topic, [f"round {round_number}"])
            await ear.until(f"round {round_number}")
    assert all(ear.messages == ["round 0", "round 1", "round 2"] for ear in ears)
    assert len(watch.others(LISTENER)) == 1
    await adapter.close()
    assert not listener_tasks()


async def test_a_server_that_is_restarted(make: Make, own_server: PostgresServer) -> None:
    adapter, ear = make(own_server.url), Ear()
    await adapter.listen("job_scheduled", ear)
    await asyncio.to_thread(own_server.stop, immediate=True)
    listening = adapter._current.listener
    async with asyncio.timeout(45):
        while listening._outcome.done():  # not noticed yet
            await asyncio.sleep(0.005)
    with pytest.raises(StorageUnavailable):  # who comes now is told so, and tries again
        await adapter.listen("job_scheduled", Ear())
    with pytest.raises(StorageUnavailable):
        await adapter.publish("job_scheduled", ["down"])
    assert len(listener_tasks()) == 1
    own_server.start()
    late = Ear()
    await adapter.listen("job_scheduled", late)  # makes it try at once
    await ear.until(MISSED)
    await adapter.publish("job_scheduled", ["up"])
    await ear.until("up")
    await late.until("up")
    assert ear.messages == ["up"]
    await adapter.close()


async def test_closing_while_the_server_is_away(make: Make, own_server: PostgresServer) -> None:
    adapter = make(own_server.url)
    dispose = await adapter.listen("job_scheduled", Ear())
    own_server.stop(immediate=True)
    async with asyncio.timeout(45):
        await adapter.close()
    await dispose()
    assert not listener_tasks()


async def test_a_server_that_keeps_silent_is_left(
    make: Make, own_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing says that the connection is dead; it is asked, and does not answer."""
    monkeypatch.setattr(listener, "PING_TIMEOUT", 0.2)
    adapter, ear = make(own_server.url), Ear()
    adapter.heartbeat = 0.05
    await adapter.listen("job_scheduled", ear)
    watch = Watcher(own_server.url)
    (pid,) = watch.others(LISTENER)
    os.kill(pid, signal.SIGSTOP)
    try:
        await ear.until(MISSED)
        await adapter.publish("job_scheduled", ["a"])
        await ear.until("a")
        assert pid in watch.others(LISTENER)
        await adapter.close()
    finally:
        os.kill(pid, signal.SIGCONT)
        watch.close()


async def test_a_sign_of_life_disturbs_nothing(make: Make, database_url: str, watch: Watcher) -> None:
    adapter, ear = make(database_url), Ear()
    adapter.heartbeat = 0.001
    await adapter.listen("chain_ended", ear)
    (pid,) = watch.others(LISTENER)
    for number in range(200):
        await adapter.publish("chain_ended", [str(number)])
    await ear.until("199")
    assert ear.heard == [str(number) for number in range(200)]
    assert watch.others(LISTENER) == [pid]
    await adapter.close()


# Through the client


async def test_messages_come_after_the_commit_and_only_then(scheme: str, make: Make, database_url: str) -> None:
    outside, ear = make(database_url), Ear()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(outside.close)
        await outside.listen("job_scheduled", ear)
        client = await stack.enter_async_context(queuert.connect(with_scheme(database_url, scheme), jobs=[Greet]))

        async def anything_so_far() -> list[str]:
            """What was sent before this is heard before it."""
            await outside.publish("job_scheduled", ["control"])
            await ear.until("control")
            heard = [value for value in ear.heard if value != "control"]
            ear.heard.clear()
            return heard

        async with client.transaction() as tx:
            await client.start(tx, Greet())
            await client.start(tx, Greet())
            assert await anything_so_far() == []
        await ear.until("greet")
        assert await anything_so_far() == ["greet"]
        with pytest.raises(RuntimeError):
            async with client.transaction() as tx:
                await client.start(tx, Greet())
                raise RuntimeError
        assert await anything_so_far() == []
        assert client.hook_failures == 0


async def test_a_commit_stands_whatever_becomes_of_its_messages(scheme: str, own_server: PostgresServer) -> None:
    async with queuert.connect(with_scheme(own_server.url, scheme), jobs=[Greet]) as client:
        own = await _connect(scheme, own_server.url)
        async with client.after_commit(own) as tx:
            async with own.transaction():
                chain = await client.start(tx, Greet())
            own_server.stop(immediate=True)
        await eventually(lambda: client.hook_failures == 1)
        await own.close()
        own_server.start()
        found = await client.get_chain(chain)
        assert found is not None
        assert found.status == "pending"


async def _connect(scheme: str, url: str) -> Any:
    if scheme.endswith("asyncpg"):
        import asyncpg

        return await asyncpg.connect(url)
    import psycopg

    return await psycopg.AsyncConnection.connect(url, autocommit=True)


async def test_workers_and_waiters_look_when_the_listener_is_back(
    scheme: str, database_url: str, watch: Watcher
) -> None:
    """What was announced while nobody could hear it is found at once, not with the next poll."""
    url = with_scheme(database_url, scheme)
    options: Any = {"jobs": [Echo], "poll_interval": 3600}
    silent: Any = {**options, "notify": None}
    async with (
        queuert.connect(url, **options) as client,
        queuert.connect(url, **silent) as other,
        Worker(client, echoing(), poll_interval=3600),
    ):
        async with client.transaction() as tx:
            first = await client.start(tx, Echo(text="first"))
        assert await client.wait(first, timeout=45) == "first"
        async with other.transaction() as tx:  # it tells nobody
            chain = await other.start(tx, Echo(text="unheard"))
        waiting = asyncio.create_task(client.wait(chain, timeout=45))
        kill_listener(watch)
        assert await waiting == "unheard"


async def _start(client: Client[Any], text: str) -> Chain[Echo]:
    """Whose connection is found dead in the middle of things hears of it, and may try again."""
    for _ in range(20):
        try:
            async with client.transaction() as tx:
                return await client.start(tx, Echo(text=text))
        except StorageUnavailable:
            continue
    raise AssertionError("it does not recover")


async def test_a_worker_goes_on_after_a_restart(scheme: str, own_server: PostgresServer) -> None:
    async with (
        queuert.connect(with_scheme(own_server.url, scheme), jobs=[Echo]) as client,
        Worker(client, echoing(), recovery_backoff=queuert.Backoff(initial=0.05, maximum=0.2)),
    ):
        for number in range(2):
            chain = await _start(client, str(number))
            assert await client.wait(chain, timeout=60) == str(number)
            if number == 0:
                await asyncio.to_thread(own_server.stop, immediate=True)
                own_server.start()


async def test_a_channel_that_keeps_silent_holds_up_nobody(scheme: str, database_url: str) -> None:
    """The listening side hangs; jobs run and waits end, by polling."""
    async with silence() as server:
        url = with_scheme(database_url, scheme)
        options: Any = {"jobs": [Echo], "poll_interval": 0.05, "listen_url": server.url}
        async with queuert.connect(url, **options) as client:
            async with client.transaction() as tx:
                chain = await client.start(tx, Echo(text="polled"))
            async with asyncio.timeout(45), Worker(client, echoing(), poll_interval=0.1):
                assert await client.wait(chain, timeout=45) == "polled"
    assert not listener_tasks()


async def test_listening_to_more_topics_loses_nothing(make: Make, database_url: str, watch: Watcher) -> None:
    """The same connection goes on, so there is no moment without one."""
    adapter, ear, other = make(database_url), Ear(), Ear()
    await adapter.listen("chain_ended", ear)
    before, published, listening = watch.others(LISTENER), 0, asyncio.Event()

    async def publish() -> None:
        nonlocal published
        while not listening.is_set() or published < 20:
            await adapter.publish("chain_ended", [f"chain {published}"])
            published += 1

    publishing = asyncio.create_task(publish())
    await ear.until("chain 5")
    await adapter.listen("job_scheduled", other)
    await adapter.publish("job_scheduled", ["greet"])
    await other.until("greet")
    listening.set()
    await publishing
    await ear.until(f"chain {published - 1}")
    assert ear.heard == [f"chain {number}" for number in range(published)]
    assert watch.others(LISTENER) == before
    await adapter.close()
    assert not listener_tasks()


async def test_listening_to_more_topics_on_a_connection_that_is_lost(
    make: Make, database_url: str, watch: Watcher
) -> None:
    adapter, ear, other = make(database_url), Ear(), Ear()
    await adapter.listen("chain_ended", ear)
    kill_listener(watch)
    await adapter.listen("job_scheduled", other)
    await adapter.publish("job_scheduled", ["greet"])
    await other.until("greet")
    await adapter.publish("chain_ended", ["chain"])
    await ear.until("chain")
    await adapter.close()
    assert not listener_tasks()
