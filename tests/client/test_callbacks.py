"""Functions of the user's own, called after a commit or a rollback."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.jobs import Greet
from tests.support.worlds import World, start

from queuert import InvalidArgument, StorageUnavailable, TransactionClosed
from queuert.client.client import Client

pytestmark = pytest.mark.drivers

Note = Callable[[str], Callable[[], Any]]


class Boom(Exception):
    """What the caller's code may raise."""


@pytest.fixture
def log() -> list[str]:
    return []


@pytest.fixture
def note(world: World, log: list[str]) -> Note:
    """Makes callbacks that write a word: async ones, if the client is async."""

    def make(word: str) -> Callable[[], Any]:
        def plain() -> None:
            log.append(word)

        async def awaited() -> None:
            await asyncio.sleep(0)
            log.append(word)

        return awaited if world.is_async else plain

    return make


async def test_after_a_commit(client: Client[Any], world: World, note: Note, log: list[str]) -> None:
    async with client.transaction() as tx:
        tx.after_rollback(note("rolled back"))
        tx.after_commit(note("first"))
        await client.start(tx, Greet())
        tx.after_commit(lambda: log.append(f"{world.count()} stored, {len(world.heard)} announced"))
        assert log == []
    assert log == ["first", "1 stored, 1 announced"]


async def test_after_a_rollback(client: Client[Any], world: World, note: Note, log: list[str]) -> None:
    with pytest.raises(Boom):
        async with client.transaction() as tx:
            tx.after_commit(note("committed"))
            tx.after_rollback(note("first"))
            await client.start(tx, Greet())
            tx.after_rollback(lambda: log.append(f"{world.count()} stored"))
            raise Boom
    assert log == ["first", "0 stored"]


async def test_a_savepoint_that_is_kept(client: Client[Any], note: Note, log: list[str]) -> None:
    async with client.transaction() as tx:
        async with client.savepoint(tx):
            tx.after_commit(note("inner"))
            tx.after_rollback(note("never"))
        tx.after_commit(note("outer"))
        assert log == []
    assert log == ["inner", "outer"]


async def test_a_savepoint_that_is_rolled_back(client: Client[Any], note: Note, log: list[str]) -> None:
    async with client.transaction() as tx:
        tx.after_commit(note("outer"))
        tx.after_rollback(note("outer undone"))
        with pytest.raises(Boom):
            async with client.savepoint(tx):
                tx.after_commit(note("inner"))
                async with client.savepoint(tx):
                    tx.after_commit(note("innermost"))
                    tx.after_rollback(note("innermost undone"))
                tx.after_rollback(note("inner undone"))
                raise Boom
        assert log == ["innermost undone", "inner undone"]
    assert log == ["innermost undone", "inner undone", "outer"]


async def test_a_savepoint_that_is_kept_in_a_transaction_that_is_not(
    client: Client[Any], note: Note, log: list[str]
) -> None:
    with pytest.raises(Boom):
        async with client.transaction() as tx:
            async with client.savepoint(tx):
                tx.after_commit(note("inner"))
                tx.after_rollback(note("inner undone"))
            raise Boom
    assert log == ["inner undone"]


@pytest.mark.parametrize("commits", [True, False])
async def test_a_callback_that_raises_stops_neither_the_others_nor_the_caller(
    client: Client[Any], world: World, log: list[str], caplog: pytest.LogCaptureFixture, commits: bool
) -> None:
    def fails() -> None:
        raise ValueError("no mail server")

    async def fails_later() -> None:
        raise asyncio.CancelledError  # of something that it waits for, not of this task

    with caplog.at_level(logging.ERROR, logger="queuert.transaction"):
        try:
            async with client.transaction() as tx:
                register = tx.after_commit if commits else tx.after_rollback
                register(fails)
                if world.is_async:
                    register(fails_later)
                register(lambda: log.append("goes on"))
                if not commits:
                    raise Boom
        except Boom:
            assert not commits
    assert log == ["goes on"]
    assert client.hook_failures == (2 if world.is_async else 1)
    record = caplog.records[0]
    assert record.getMessage() == (
        f"the callback {fails.__qualname__} of after_{'commit' if commits else 'rollback'}() failed; "
        f"the transaction is {'committed' if commits else 'rolled back'}"
    )
    assert record.exc_info is not None
    await start(client, Greet())


async def test_the_callers_own_transaction(client: Client[Any], world: World, note: Note, log: list[str]) -> None:
    own = world.connection()
    async with client.after_commit(own.raw) as tx:
        own.begin()
        tx.after_commit(note("committed"))
        tx.after_rollback(note("never"))
        await client.start(tx, Greet())
        own.commit()
        assert log == []
    assert log == ["committed"]
    with pytest.raises(Boom):
        async with client.after_commit(own.raw) as tx:
            own.begin()
            tx.after_commit(note("never"))
            tx.after_rollback(note("rolled back"))
            own.roll_back()
            raise Boom
    own.close()
    assert log == ["committed", "rolled back"]


async def test_a_callback_may_open_a_transaction_of_its_own(client: Client[Any], world: World) -> None:
    async def again() -> None:
        await start(client, Greet())

    def again_sync() -> None:
        sync: Any = client.sync  # type: ignore[attr-defined]
        sync.submit(Greet())

    callback = again if world.is_async else again_sync
    async with client.transaction() as tx:
        tx.after_commit(callback)
    with pytest.raises(Boom):
        async with client.transaction() as tx:
            tx.after_rollback(callback)
            raise Boom
    assert (client.hook_failures, world.count()) == (0, 2)


async def test_what_is_no_callback_is_refused(client: Client[Any], world: World) -> None:
    class Asks:
        async def __call__(self) -> None: ...

    async def coroutine() -> None: ...

    async with client.transaction() as tx:
        for register in (tx.after_commit, tx.after_rollback):
            with pytest.raises(InvalidArgument, match="takes a function without arguments, got 7"):
                register(7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            if world.is_async:
                continue
            for wrong in (coroutine, functools.partial(coroutine), Asks()):
                with pytest.raises(InvalidArgument, match=r"coroutine function .* pass a plain function"):
                    register(wrong)
    for register in (tx.after_commit, tx.after_rollback):
        with pytest.raises(TransactionClosed):
            register(lambda: None)


async def test_a_sync_client_awaits_nothing(
    client: Client[Any], world: World, caplog: pytest.LogCaptureFixture
) -> None:
    if world.is_async:
        pytest.skip("an async client awaits it")

    async def coroutine() -> None: ...

    async with client.transaction() as tx:
        tx.after_commit(lambda: coroutine())
    assert client.hook_failures == 1
    assert "cannot await" in caplog.text


async def test_neither_kind_is_called_if_a_commit_may_have_taken_effect(
    client: Client[Any], world: World, note: Note, log: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    provider: Any = client.sessions._provider
    transaction = provider.transaction
    provider.transaction = lambda *first: _Lost(transaction(*first))
    try:
        with pytest.raises(StorageUnavailable):
            async with client.transaction() as tx:
                tx.after_commit(note("committed"))
                tx.after_rollback(note("rolled back"))
    finally:
        del provider.transaction
    assert log == []
    assert "so 2 callbacks of after_commit() and after_rollback() are not called" in caplog.text


class _Lost:
    """The block of a transaction whose connection is lost while the commit is under way."""

    def __init__(self, block: Any) -> None:
        self._block = block

    async def __aenter__(self) -> Any:
        return await self._block.__aenter__()

    async def __aexit__(self, *error: Any) -> None:
        await self._block.__aexit__(*error)
        raise StorageUnavailable("the connection was lost")


async def test_a_transaction_is_the_transaction_of_itself(client: Client[Any]) -> None:
    async with client.transaction() as tx:
        of_it: Any = client.transaction_of(tx)
        assert (await of_it if asyncio.iscoroutine(of_it) else of_it) is tx
