"""Archiving chains of one type: calling the function, in the transaction that deletes them."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from queuert.base.transaction import Transaction
from queuert.engine.operations.archived import take
from queuert.engine.sessions import Sessions
from queuert.errors import InvalidArgument
from queuert.records.archive import Archive, ArchivedChain, is_async, place_of
from queuert.records.retention import Pruned

LIMIT = 30.0
"""Seconds that archiving may take at once, in an async client."""
AT_ONCE = 200
"""Chains that `client.prune` archives in one transaction."""
LONGEST_ERROR = 500
"""Characters of an error that are stored."""


class Archived(NamedTuple):
    chains: int
    jobs: int


class Archiver:
    """Archives chains of one type."""

    def __init__(self, sessions: Sessions[Any], type_name: str, archive: Archive, *, blocking: bool) -> None:
        self._sessions = sessions
        self._type_name = type_name
        self._archive = archive
        self._blocking = blocking
        self._in_use = False
        """A thread is in the function."""
        self._may_have_failed = True
        """The stored error may have to be cleared."""

    async def step(self, limit: int) -> Archived:
        """Archive at most this many chains, and delete them. If that fails, none of them is
        deleted, and the error is stored.
        """
        try:
            chains = await self._step(limit)
        except Exception as error:
            self._may_have_failed = True
            text = f"{type(error).__name__}: {error}".replace("\0", "")[:LONGEST_ERROR]
            with contextlib.suppress(Exception):  # the database may be the reason
                await self._sessions.run(self._state.archive_failed(self._type_name, text))
            raise
        if chains:
            self._may_have_failed = False
        return Archived(len(chains), sum(len(chain.jobs) for chain in chains))

    @property
    def _state(self) -> Any:
        return self._sessions.engine.state

    async def _step(self, limit: int) -> list[ArchivedChain]:
        if self._blocking:
            return await self._transaction(limit)
        if self._in_use:
            raise TimeoutError(f"{place_of(self._archive)} was called more than {LIMIT:g} s ago, and has not returned")
        try:
            async with asyncio.timeout(LIMIT):
                return await self._transaction(limit)
        except TimeoutError as error:
            raise TimeoutError(f"{place_of(self._archive)} took more than {LIMIT:g} s") from error

    async def _transaction(self, limit: int) -> list[ArchivedChain]:
        sessions = self._sessions
        async with sessions.transaction() as tx:
            program = take(sessions.engine, self._type_name, self._archive, limit)
            chains = await sessions.run(program, tx.connection)
            if chains:
                await self._call(tx, chains)
                if self._may_have_failed:
                    await sessions.run(self._state.archive_failed(self._type_name, None), tx.connection)
        return chains

    async def _call(self, tx: Transaction[Any], chains: Sequence[ArchivedChain]) -> None:
        if self._blocking:
            _plain(self._archive, tx, chains)
        elif is_async(self._archive):
            pending = self._archive(tx, chains)
            assert pending is not None
            await pending
        else:
            await self._in_thread(tx, chains)

    async def _in_thread(self, tx: Transaction[Any], chains: Sequence[ArchivedChain]) -> None:
        """In a thread of its own, not of a pool: a thread that hangs must not keep the process from
        ending.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def run() -> None:
            failure: BaseException | None = None
            try:
                _plain(self._archive, tx, chains)
            except BaseException as error:
                failure = error
            self._in_use = False
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(_resolve, done, failure)

        self._in_use = True
        threading.Thread(target=run, name="queuert-archive", daemon=True).start()
        await done


async def archive_all(sessions: Sessions[Any], pruned: Pruned, *, blocking: bool) -> Pruned:
    """Archive now what is due and can be archived here. If a function fails, the other types are
    archived first, and then its error is raised.
    """
    state, jobs = sessions.engine.state, sessions.engine.jobs
    chains, number, failure = Counter(pruned.chains), pruned.jobs, list[Exception]()
    archives = {name: each for name, each in jobs.archives.items() if not (blocking and is_async(each))}
    if archives:
        await sessions.run(state.tend_archive())
    for name in await sessions.run(state.waiting_to_archive(list(archives))):
        archiver = Archiver(sessions, name, archives[name], blocking=blocking)
        try:
            while (step := await archiver.step(AT_ONCE)).chains:
                chains[name] += step.chains
                number += step.jobs
        except Exception as error:
            failure.append(error)
    if failure:
        raise failure[0]
    found = await sessions.run(state.retention())
    waiting = {each.policy.chain_type: each.waiting for each in found.types if each.waiting}
    return replace(pruned, chains=dict(sorted(chains.items())), jobs=number, waiting=waiting)


def _plain(archive: Archive, tx: Transaction[Any], chains: Sequence[ArchivedChain]) -> None:
    result = archive(tx, chains)
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise InvalidArgument(f"{place_of(archive)} returned something to be awaited: write it with `async def`")


def _resolve(done: asyncio.Future[None], failure: BaseException | None) -> None:
    if done.done():
        return
    if failure is None:
        done.set_result(None)
    elif isinstance(failure, Exception):
        done.set_exception(failure)
    else:
        done.set_exception(RuntimeError(f"the archive function raised {failure!r}"))
