"""The sync provider: a connection for each thread that uses it."""

from __future__ import annotations

import sqlite3
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from queuert.adapters.sqlite import session
from queuert.adapters.sqlite.connecting import Database
from queuert.adapters.sqlite.joining import Joining
from queuert.adapters.sqlite.unit import Unit, run_alone, run_inside
from queuert.errors import ClientClosed, TransactionNested
from queuert.ports.beginning import SyncBegun
from queuert.ports.provider import SyncBlock, SyncProvider
from queuert.sql.statement import Statement


class _Place:
    """What one thread has open. It goes when the thread goes, and takes the connections along."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connections: dict[str, sqlite3.Connection] = {}
        self.in_use = threading.Lock()
        self.in_transaction = False

    @property
    def own(self) -> sqlite3.Connection | None:
        return self._connections.get("own")

    def connect(self) -> sqlite3.Connection:
        """The connection for everything but reads beside an open transaction. It rests."""
        return self._connection("own", read_only=False)

    def connect_beside(self) -> sqlite3.Connection:
        """A second one, for reads that must not see what the open transaction has written."""
        return self._connection("beside", read_only=True)

    def drop(self) -> None:
        while self._connections:
            self._connections.popitem()[1].close()

    def __del__(self) -> None:
        self.drop()

    def _connection(self, name: str, *, read_only: bool) -> sqlite3.Connection:
        connection = self._connections.get(name)
        if connection is not None and not session.is_at_rest(connection):
            del self._connections[name]
            connection.close()
            connection = None
        if connection is None:
            connection = self._connections[name] = self._database.connect(read_only=read_only)
        return connection


class SqliteProvider:
    """`sqlite3`, blocking. Reads and transactions of different threads go on side by side; writers take turns."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._local = threading.local()
        self._places: WeakSet[_Place] = WeakSet()
        self._mutex = threading.Lock()
        self._joining = Joining(database)
        self._closed = False

    def transaction(self, first: Statement | Unit[Any] | None = None) -> SyncBlock[sqlite3.Connection]:
        return _Transaction(self) if first is None else SyncBegun(self, _Transaction(self), first)

    def savepoint(self, connection: sqlite3.Connection) -> session.Savepoint:
        self._check_open()
        if self._is_own(connection):
            return session.Savepoint(connection, self.database.path)
        return self._joining.savepoint(connection)

    def execute(self, connection: sqlite3.Connection | None, command: Statement | Unit[Any]) -> Any:
        if connection is not None:
            self._check_open()
            return self._execute_inside(connection, command)
        if isinstance(command, Statement) and not command.writes and self._place().in_transaction:
            return session.execute(self._place().connect_beside(), command, self.database.path)
        place = self.enter()
        try:
            if isinstance(command, Unit):
                return run_alone(place.connect(), command, self.database, _never)
            return session.execute(place.connect(), command, self.database.path)
        finally:
            self.leave(place)

    def check(self, connection: sqlite3.Connection) -> None:
        self._check_open()
        self._joining.check(connection)

    def in_transaction(self, connection: sqlite3.Connection) -> bool:
        return session.is_open(connection)

    def close(self) -> None:
        """Connections that a thread is using right now are closed by that thread, when it is done."""
        self._closed = True
        with self._mutex:
            places = list(self._places)
        for place in places:
            if place.in_use.acquire(blocking=False):
                try:
                    place.drop()
                finally:
                    place.in_use.release()
        self._joining.close()

    def _execute_inside(self, connection: sqlite3.Connection, command: Statement | Unit[Any]) -> Any:
        if not self._is_own(connection):
            return self._joining.execute(connection, command)
        session.require_open(connection)
        if isinstance(command, Unit):
            return run_inside(connection, command, self.database.path)
        return session.execute(connection, command, self.database.path)

    def _place(self) -> _Place:
        self._check_open()
        place: _Place | None = getattr(self._local, "place", None)
        if place is None:
            place = self._local.place = _Place(self.database)
            with self._mutex:
                self._places.add(place)
        return place

    def enter(self) -> _Place:
        """This thread's place, for as long as `leave` is not called."""
        place = self._place()
        if place.in_transaction:
            raise TransactionNested(
                "this thread has a transaction open and would wait for itself: use the transaction that is open"
            )
        place.in_use.acquire()
        if self._closed:  # in the meantime, by another thread
            place.in_use.release()
        self._check_open()
        return place

    def leave(self, place: _Place) -> None:
        place.in_use.release()
        if self._closed:
            with place.in_use:
                place.drop()

    def _is_own(self, connection: sqlite3.Connection) -> bool:
        place: _Place | None = getattr(self._local, "place", None)
        return place is not None and place.own is connection

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed("SQLite provider")


class _Transaction:
    """A transaction on this thread's connection."""

    answer: Any = None

    def __init__(self, provider: SqliteProvider) -> None:
        self._provider = provider
        self._path = provider.database.path

    def __enter__(self) -> sqlite3.Connection:
        self._place = self._provider.enter()
        try:
            self._connection = self._place.connect()
            session.begin(self._connection, self._path)
        except BaseException:
            self._provider.leave(self._place)
            raise
        self._place.in_transaction = True
        return self._connection

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        intact = False
        try:
            if error is None:
                self._provider.database.commit(self._connection)
                intact = True
            else:
                intact = session.roll_back(self._connection)
                session.note_if_gone(error, intact=intact)
        finally:
            self._place.in_transaction = False
            if not intact:
                self._place.drop()  # whatever was done to it, the next one is as good as new
            self._provider.leave(self._place)


def _never() -> bool:
    return False


if TYPE_CHECKING:
    _: type[SyncProvider[sqlite3.Connection]] = SqliteProvider
