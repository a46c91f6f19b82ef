"""Where the jobs of a simulation are: in memory, in SQLite, or in a real PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator
from contextlib import closing, contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from tests.simulation.plan import Plan
from tests.simulation.process import Process, SimulatedNotify, SimulatedProvider, gone
from tests.simulation.server import OrderedServer, operations, ordered_server

from queuert import StorageUnavailable
from queuert.adapters.memory import MemoryStore
from queuert.adapters.memory.operations import MemoryOperations
from queuert.adapters.memory.provider import AsyncMemoryProvider
from queuert.adapters.postgres.drivers.psycopg import PsycopgSyncProvider
from queuert.adapters.postgres.notify.locks import SessionLocks
from queuert.adapters.sqlite import sync_sqlite_state
from queuert.base.blocking import Block, run_blocking
from queuert.base.contexts import async_context
from queuert.ports.program import Program
from queuert.ports.provider import BlockingProvider, run_async


class Embedded:
    """One that tasks write to one after the other."""

    def __init__(self, plan: Plan, now: Callable[[], datetime], folder: Path) -> None:
        self._in_memory = plan.storage == "memory"
        self._now = now
        self._store = MemoryStore(now)
        self._path = folder / f"{plan.seed}.db"
        self._files: list[Any] = []
        self._reading = self._parts()

    def _parts(self) -> tuple[Any, Any]:
        """Operations and the real provider, as a process of its own would have them."""
        if self._in_memory:
            return MemoryOperations(), AsyncMemoryProvider(self._store)
        state = sync_sqlite_state(self._path, clock=self._now)
        self._files.append(state.provider)
        return state.operations, BlockingProvider(state.provider)

    def parts_of(self, process: Process) -> tuple[Any, Any, Any]:
        """Operations, provider and channel of a process."""
        operations, provider = self._parts()
        return operations, SimulatedProvider(provider, process), SimulatedNotify(process)

    def read(self, program: str, *args: Any, **options: Any) -> Any:
        operations, provider = self._reading
        return _read(operations, provider, program, *args, **options)

    def close(self) -> None:
        """Also what processes that were killed have left open."""
        for provider in self._files:
            provider.close()


class Postgres:
    """Transactions of several tasks are open at once, and wait for each other's locks."""

    def __init__(self, server: OrderedServer) -> None:
        self._server = server
        self._operations = operations()
        self._reading = BlockingProvider(server.provider())

    def parts_of(self, process: Process) -> tuple[Any, Any, Any]:
        provider = self._server.provider()
        notify = HoldingNotify(process, self._server)

        def notice() -> None:
            self._server.cancel_all(process)
            notify.hang_up()
            provider.close()

        process.on_kill = notice
        return self._operations, OrderedProvider(provider, process, self._server), notify

    def read(self, program: str, *args: Any, **options: Any) -> Any:
        self._server.set_clock()
        return _read(self._operations, self._reading, program, *args, **options)


def _read(operations: Any, provider: Any, program: str, *args: Any, **options: Any) -> Any:
    """Takes no time, and nothing goes wrong."""
    made: Program[Any] = getattr(operations, program)(*args, **options)
    return run_blocking(run_async(provider, None, made))


@contextmanager
def storage_of(plan: Plan, now: Callable[[], datetime], folder: Path) -> Generator[Embedded | Postgres]:
    if plan.storage != "postgres":
        with closing(Embedded(plan, now, folder)) as storage:
            yield storage
        return
    with ordered_server(Random(f"locks {plan.seed}"), now) as server:
        yield Postgres(server)


class OrderedProvider(SimulatedProvider):
    """psycopg's provider. The server carries out one call at a time."""

    def __init__(self, inner: PsycopgSyncProvider, process: Process, server: OrderedServer) -> None:
        super().__init__(inner, process)
        self.process = process
        self.server = server

    def transaction(self, first: Any = None) -> Any:
        return _OrderedTransaction(self, self._inner.transaction(first))

    @async_context
    async def savepoint(self, connection: Any) -> AsyncIterator[None]:
        block = self._inner.savepoint(connection)
        await self.carry_out(block.__enter__)
        try:
            yield
        except BaseException as error:
            self.server.carry_out_now(self.process, partial(block.__exit__, type(error), error, None))
            raise
        await self.carry_out(lambda: block.__exit__(None, None, None))

    async def execute(self, connection: Any, command: Any) -> Any:
        if connection is not None:
            await self.say(connection, "execute")
            return await self.carry_out(lambda: self._inner.execute(connection, command))
        await self.process.io("execute alone")
        result = await self.carry_out(lambda: self._inner.execute(None, command))
        if command.writes:
            self.process.shared.on_change()
        await self.process.io("answer")
        return result

    async def carry_out(self, what: Callable[[], Any]) -> Any:
        return await self.server.carry_out(self.process, what)

    def cut_off(self, connection: Any) -> None:
        self._inner.abandon(connection)

    async def close(self) -> None:
        self._inner.close()


class _OrderedTransaction(Block[Any]):
    def __init__(self, provider: OrderedProvider, block: Any) -> None:
        self._provider = provider
        self._process = provider.process
        self._block = block
        self._connection: Any = None
        self._is_committed = False

    @property
    def answer(self) -> Any:
        return self._block.answer

    async def __aenter__(self) -> Any:
        await self._process.io("begin")
        try:
            await self._provider.carry_out(self._enter)
        except BaseException:
            # Cancelled while it waited for a lock, perhaps a moment after it got the lock.
            self._process.abandon(id(self._connection))
            raise
        return self._connection

    def _enter(self) -> None:
        self._connection = self._block.__enter__()
        self._process.open[id(self._connection)] = self._end

    def _end(self) -> None:
        """The connection is lost. The server is told what it would notice, so that it does so now."""
        server, connection, error = self._provider.server, self._connection, gone()

        def roll_back() -> None:
            connection.pgconn.exec_(b"ROLLBACK")
            self._provider.cut_off(connection)
            self._block.__exit__(type(error), error, None)

        server.cancel_on(connection)
        server.carry_out_now(self._process, roll_back)

    async def commit_with(self, command: Any) -> bool:
        """See `queuert.ports.provider.CommittingWith`."""
        await self._provider.say(self._connection, "commit with")
        self._is_committed = await self._provider.carry_out(lambda: run_blocking(self._block.commit_with(command)))
        if self._is_committed:
            await self._committed()
        return self._is_committed

    async def _committed(self) -> None:
        self._process.open.pop(id(self._connection), None)
        self._process.shared.on_change()
        await self._process.io("committed")

    async def __aexit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        key = id(self._connection)
        try:
            if self._is_committed:
                self._provider.server.carry_out_now(self._process, lambda: self._block.__exit__(None, None, None))
            elif error is not None:
                self._process.abandon(key)
            else:
                await self._commit(key)
        finally:
            self._process.broken.discard(key)

    async def _commit(self, key: int) -> None:
        try:
            await self._provider.say(self._connection, "commit")
        except BaseException:
            self._process.abandon(key)
            raise
        if self._process.open.pop(key, None) is None:
            raise StorageUnavailable("simulated: the connection was closed by force")
        await self._provider.carry_out(lambda: self._block.__exit__(None, None, None))
        await self._committed()


class HoldingNotify(SimulatedNotify):
    """With a connection that holds the lock of a worker, as the listening one does. Other workers see when it ends."""

    def __init__(self, process: Process, server: OrderedServer) -> None:
        super().__init__(process)
        self._server = server
        self._connection: Any = None
        self._locks: Any = None

    async def hold(self, key: int) -> int | None:
        await self._process.io("hold", fails=False)
        if self._locks is None:
            self._connection = self._server.connect()
            self._locks = SessionLocks(self._connection.info.backend_pid, self._ask)
        held: int | None = await self._locks.hold(key)
        return held

    async def release(self, key: int) -> None:
        if self._locks is not None:
            await self._locks.release(key)
            self.hang_up()

    async def _ask(self, text: str) -> bool:
        connection = self._connection
        ((answer,),) = await self._server.carry_out(self._process, lambda: connection.execute(text).fetchall())
        return bool(answer)

    def hang_up(self) -> None:
        """The server is told, so that it notices now."""
        if self._connection is not None:
            self._connection.execute("SELECT pg_advisory_unlock_all()")
            self._connection.close()
            self._connection = self._locks = None
