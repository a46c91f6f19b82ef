"""A simulated process: all that it says to the database and to other processes passes here.

So a process can be killed at any of these points, be slow, lose its connection before or after a command took effect,
and lose or repeat notifications. The real adapters do the work.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from queuert import StorageUnavailable
from queuert.adapters.in_process import InProcessHub, InProcessNotify
from queuert.adapters.sqlite.connections.abandoning import OwnRaw
from queuert.base.blocking import run_blocking
from queuert.base.contexts import async_context
from queuert.ports.beginning import Begun
from queuert.ports.notify import Topic

SLOWEST = 0.05
"""Seconds for a message to the database and back, usually."""
HANG = 40.0
"""Seconds that the database may be silent."""


@dataclass
class Faults:
    """How often things go wrong, as probabilities. All are 0 once the run comes to its end."""

    lost: float = 0.0
    """A connection, before or after what it was used for."""
    hanging: float = 0.0
    """The database does not answer for a long time."""
    unheard: float = 0.0
    """A notification is lost."""


@dataclass
class Shared:
    """What all processes have in common."""

    random: Random
    faults: Faults
    hub: InProcessHub = field(default_factory=InProcessHub)
    trace: list[str] = field(default_factory=list[str])
    on_change: Callable[[], None] = lambda: None
    """Called after every commit."""

    def __post_init__(self) -> None:
        self.writer = WriteLock()

    def note(self, *what: object) -> None:
        self.trace.append(" ".join(map(str, (round(asyncio.get_running_loop().time(), 6), *what))))


class WriteLock:
    """One writer at a time, first come, first served. Threads would block the loop, so tasks wait here."""

    def __init__(self) -> None:
        self.holder: Process | None = None
        self._waiting: deque[tuple[asyncio.Future[None], Process]] = deque()

    async def acquire(self, process: Process) -> None:
        if self.holder is None:
            self.holder = process
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((turn, process))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release()
            raise
        await process.while_alive()

    def release(self) -> None:
        self.holder = None
        while self._waiting:
            turn, process = self._waiting.popleft()
            if not turn.done() and not process.dead:
                self.holder = process
                turn.set_result(None)
                return


class Process:
    def __init__(self, name: str, shared: Shared) -> None:
        self.name = name
        self.shared = shared
        self.dead = False
        self.open: dict[int, Callable[[], None]] = {}
        """The transactions that it has open, by the identity of their connections: how the database ends them."""
        self.broken: set[int] = set()
        """Connections that were lost."""
        self.on_kill: Callable[[], None] = lambda: None
        """How the database notices."""

    async def io(self, what: str, *, fails: bool = True) -> None:
        """Say something, or hear an answer."""
        shared = self.shared
        await self.while_alive()
        hangs = shared.random.random() < shared.faults.hanging
        await asyncio.sleep(shared.random.random() * (HANG if hangs else SLOWEST))
        await self.while_alive()
        lost = fails and shared.random.random() < shared.faults.lost
        shared.note(self.name, what, "lost" * lost)
        if lost:
            raise StorageUnavailable(f"simulated: the connection of {self.name} was lost at {what}")

    async def while_alive(self) -> None:
        """A process that was killed does nothing any more."""
        if self.dead:
            await asyncio.get_running_loop().create_future()

    def kill(self) -> None:
        """As with SIGKILL: the database rolls back what is open."""
        self.dead = True
        self.shared.note(self.name, "killed")
        for connection in list(self.open):
            self.abandon(connection)
        if self.shared.writer.holder is self:  # it was its turn, and it has not begun
            self.shared.writer.release()
        self.on_kill()

    def abandon(self, connection: int) -> None:
        end = self.open.pop(connection, None)
        if end is not None:
            end()


def gone() -> StorageUnavailable:
    return StorageUnavailable("simulated: the connection is gone")


class SimulatedProvider:
    """The provider of one process."""

    def __init__(self, inner: Any, process: Process) -> None:
        self._inner = inner
        self._process = process

    def transaction(self, first: Any = None) -> Begun[Any]:
        return Begun(self, self._transaction(), first)

    @async_context
    async def _transaction(self) -> AsyncIterator[Any]:
        process, shared = self._process, self._process.shared
        await process.io("begin")
        await shared.writer.acquire(process)
        block = self._inner.transaction()
        try:
            connection = await block.__aenter__()
        except BaseException:
            shared.writer.release()
            raise

        def end() -> None:
            error = gone()
            run_blocking(block.__aexit__(type(error), error, None))
            if isinstance(connection, OwnRaw):
                connection.abandoned = True  # a call that is still on its way must not meet the next transaction
            shared.writer.release()

        process.open[id(connection)] = end
        try:
            yield connection
            await self.say(connection, "commit")
        except BaseException:
            process.abandon(id(connection))
            raise
        finally:
            process.broken.discard(id(connection))
        if process.open.pop(id(connection), None) is None:
            raise StorageUnavailable("simulated: the connection was closed by force")
        await block.__aexit__(None, None, None)
        shared.writer.release()
        shared.on_change()
        await process.io("committed")

    @async_context
    async def savepoint(self, connection: Any) -> AsyncIterator[None]:
        async with self._inner.savepoint(connection):
            yield

    async def execute(self, connection: Any, command: Any) -> Any:
        process, shared = self._process, self._process.shared
        if connection is not None:
            await self.say(connection, "execute")
            return await self._inner.execute(connection, command)
        await process.io("execute alone")
        if not command.writes:
            result = await self._inner.execute(None, command)
        else:
            await shared.writer.acquire(process)
            try:
                result = await self._inner.execute(None, command)
            finally:
                shared.writer.release()
            shared.on_change()
        await process.io("answer")
        return result

    async def say(self, connection: Any, what: str) -> None:
        """In a transaction: a connection that was lost stays lost."""
        if id(connection) in self._process.broken:
            raise gone()
        try:
            await self._process.io(what)
        except StorageUnavailable:
            self._process.broken.add(id(connection))
            raise
        if id(connection) not in self._process.open:
            raise StorageUnavailable("simulated: the connection was closed by force")

    def abandon(self, connection: Any) -> bool:
        self._process.broken.add(id(connection))
        self._process.abandon(id(connection))
        return True

    def check(self, connection: Any) -> None:
        self._inner.check(connection)

    def in_transaction(self, connection: Any) -> bool:
        return id(connection) in self._process.open and self._inner.in_transaction(connection)

    async def close(self) -> None:
        await self._inner.close()


class SimulatedNotify(InProcessNotify):
    """Messages come late, twice, or not at all."""

    immediate = False

    def __init__(self, process: Process) -> None:
        super().__init__(process.shared.hub)
        self._process = process

    async def publish(self, topic: Topic, values: Sequence[str]) -> None:
        shared, loop = self._process.shared, asyncio.get_running_loop()
        await self._process.io("publish", fails=False)
        for value in values:
            if shared.random.random() >= shared.faults.unheard:
                for _ in range(1 + (shared.random.random() < shared.faults.unheard)):
                    loop.call_later(shared.random.random() * SLOWEST, self.hub.publish, topic, [value])
