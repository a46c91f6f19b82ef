"""A client whose storage can be watched: each thing done to the database passes a named point.

The real adapter does the work. At a point a test may count, hold whoever comes by (`Gate`), or let him fail. Points are
the operations of the state port ("claim", "settle", …, and "settle.done" once it took effect; "lock_chains" is
the reading of chains with a lock) and the steps of transactions: "begin", "begun", "savepoint", "release", "released",
"commit", "committed", "rollback".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, cast

from tests.behaviour.steps import Gate

from queuert import Client, StorageError
from queuert.base.contexts import async_context, context
from queuert.ports.beginning import Begun, SyncBegun
from queuert.ports.program import Atomic, Program
from queuert.ports.state import StateAdapter, StateOperations

Visit = Callable[[str], Awaitable[None] | None]


class Points:
    def __init__(self, *, records: bool = True) -> None:
        self.records = records
        self.counts: Counter[str] = Counter()
        self.visit: Visit | None = None
        """Called at every point, before anything else; it may raise."""
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        """Every operation that was asked for, with its arguments."""
        self._at: dict[str, Callable[[], Awaitable[None]]] = {}
        self._failures: dict[str, list[Exception]] = {}

    def at(self, point: str, act: Callable[[], Awaitable[None]]) -> None:
        """Everybody who comes to this point does this first."""
        self._at[point] = act

    def hold(self, point: str) -> Gate:
        """Everybody who comes to this point waits, until the gate is opened."""
        gate = Gate()
        self.at(point, gate)
        return gate

    def fail(self, point: str, *errors: Exception) -> None:
        """The next ones to come to this point get these errors."""
        self._failures.setdefault(point, []).extend(errors)

    def fail_times(self, point: str, times: int) -> None:
        self.fail(point, *(StorageError(f"no database at {point}, {number}") for number in range(times)))

    def mend(self, point: str) -> None:
        """No more failures here."""
        self._failures.pop(point, None)

    def sizes(self, operation: str) -> list[int]:
        """How many items each call of an array-shaped operation had."""
        return [len(args[0]) for name, args in self.calls if name == operation]

    @property
    def statements(self) -> int:
        """What a database would have been asked: operations, and the steps of transactions."""
        return sum(self.counts[name] for name in self.counts if "." not in name and name not in ("begun", "committed"))

    async def reach(self, point: str) -> None:
        self.pass_by(point)
        if point in self._at:
            await self._at[point]()

    def pass_by(self, point: str) -> None:
        """For threads, which no gate can hold."""
        self.counts[point] += 1
        if self.visit is not None:
            self.visit(point)
        if self._failures.get(point):
            raise self._failures[point].pop(0)


def watched(client: Client[Any], points: Points, *, notify: Any = None, poll_interval: float = 0.02) -> Client[Any]:
    """A client on the database of another one, which is not to be entered."""
    state = client.sessions.storage
    operations = cast(StateOperations, _NamedOperations(state.operations, points))
    sync_provider = None if state.sync_provider is None else _SyncProvider(state.sync_provider, points)
    adapter: StateAdapter[Any] = StateAdapter(operations, _Provider(state.provider, points), sync_provider)
    watching = Client(adapter, notify or client.sessions.channel, client._engine.jobs, poll_interval=poll_interval)
    watching.sessions.open()
    return watching


class _Named:
    """A command, and the operation it belongs to."""

    def __init__(self, name: str, command: Any) -> None:
        self.name = name
        self.command = command
        self.writes = getattr(command, "writes", True)


class _NamedOperations:
    def __init__(self, operations: StateOperations, points: Points) -> None:
        self._operations = operations
        self._points = points

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._operations, name)

        def call(*args: Any, **options: Any) -> Program[Any]:
            if self._points.records:
                self._points.calls.append((name, args))
            reads = name.startswith("get_") and options.get("lock")
            point = f"lock_{name.removeprefix('get_')}" if reads else name
            return _named(point, operation(*args, **options))

        return call


def _named(name: str, program: Program[Any]) -> Program[Any]:
    try:
        command = next(program)
        while True:
            if isinstance(command, Atomic):
                outgoing: Any = Atomic(_named(name, command.program))
            else:
                outgoing = _Named(name, command)
            try:
                answer = yield outgoing
            except BaseException as error:
                command = program.throw(error)
            else:
                command = program.send(answer)
    except StopIteration as done:
        return done.value


class _Provider:
    def __init__(self, provider: Any, points: Points) -> None:
        self._inner = provider
        self._points = points

    def transaction(self, first: _Named | None = None) -> Begun[Any]:
        return Begun(self, self._transaction(), first)

    @async_context
    async def _transaction(self) -> AsyncIterator[Any]:
        points = self._points
        await points.reach("begin")
        block = self._inner.transaction()
        connection = await block.__aenter__()
        try:
            await points.reach("begun")
            yield connection
            await points.reach("commit")
        except BaseException as error:
            points.counts["rollback"] += 1
            await block.__aexit__(type(error), error, error.__traceback__)
            raise
        await block.__aexit__(None, None, None)
        await points.reach("committed")

    @async_context
    async def savepoint(self, connection: Any) -> AsyncIterator[None]:
        await self._points.reach("savepoint")
        async with self._inner.savepoint(connection):
            yield
            await self._points.reach("release")
        await self._points.reach("released")

    async def execute(self, connection: Any, command: _Named) -> Any:
        await self._points.reach(command.name)
        result = await self._inner.execute(connection, command.command)
        await self._points.reach(f"{command.name}.done")
        return result

    def check(self, connection: Any) -> None:
        self._inner.check(connection)

    def in_transaction(self, connection: Any) -> bool:
        in_transaction: bool = self._inner.in_transaction(connection)
        return in_transaction

    async def close(self) -> None:
        await self._inner.close()


class _SyncProvider:
    def __init__(self, provider: Any, points: Points) -> None:
        self._inner = provider
        self._points = points

    def transaction(self, first: _Named | None = None) -> SyncBegun[Any]:
        return SyncBegun(self, self._transaction(), first)

    @context
    def _transaction(self) -> Iterator[Any]:
        self._points.pass_by("begin")
        with self._inner.transaction() as connection:
            self._points.pass_by("begun")
            yield connection
            self._points.pass_by("commit")
        self._points.pass_by("committed")

    @context
    def savepoint(self, connection: Any) -> Iterator[None]:
        with self._inner.savepoint(connection):
            yield
            self._points.pass_by("release")

    def execute(self, connection: Any, command: _Named) -> Any:
        self._points.pass_by(command.name)
        return self._inner.execute(connection, command.command)

    def check(self, connection: Any) -> None:
        self._inner.check(connection)

    def in_transaction(self, connection: Any) -> bool:
        in_transaction: bool = self._inner.in_transaction(connection)
        return in_transaction

    def close(self) -> None:
        self._inner.close()
