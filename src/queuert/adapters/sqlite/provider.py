"""The sync provider: a connection for each thread that uses it."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from queuert.adapters.sqlite import session
from queuert.adapters.sqlite.connecting import Database
from queuert.adapters.sqlite.joining import Joining
from queuert.errors import ClientClosed, TransactionMisused, TransactionNested
from queuert.ports.provider import SyncProvider
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
        """The connection for everything but reads beside an open transaction."""
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
        if name not in self._connections:
            self._connections[name] = self._database.connect(read_only=read_only)
        return self._connections[name]


class SqliteProvider:
    """`sqlite3`, blocking. Reads and transactions of different threads go on side by side; writers take turns."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._local = threading.local()
        self._places: WeakSet[_Place] = WeakSet()
        self._mutex = threading.Lock()
        self._joining = Joining(database)
        self._closed = False

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        place = self._place()
        if place.in_transaction:
            raise TransactionNested(
                "this thread has a transaction open and would wait for itself: use the transaction that is open"
            )
        with self._using(place):
            connection = place.connect()
            session.begin(connection, self.database.path)
            place.in_transaction = True
            try:
                yield connection
            except BaseException as error:
                intact = session.roll_back(connection)
                session.note_if_gone(error, intact)
                if not intact:
                    place.drop()
                raise
            else:
                try:
                    session.commit(connection, self.database.path)
                except TransactionMisused:
                    place.drop()  # whatever was done to it, the next one is as good as new
                    raise
            finally:
                place.in_transaction = False

    @contextmanager
    def savepoint(self, connection: sqlite3.Connection) -> Iterator[None]:
        self._check_open()
        if not self._is_own(connection):
            with self._joining.savepoint(connection):
                yield
            return
        session.save(connection, self.database.path)
        try:
            yield
        except BaseException as error:
            session.note_if_gone(error, session.roll_back_to(connection))
            raise
        else:
            session.release(connection, self.database.path)

    def execute(self, connection: sqlite3.Connection | None, command: Statement) -> Any:
        if connection is not None:
            self._check_open()
            return self._execute_inside(connection, command)
        place = self._place()
        if not place.in_transaction:
            with self._using(place):
                return session.execute(place.connect(), command, self.database.path)
        if command.writes:
            raise TransactionNested(
                "this thread has a transaction open and would wait for itself: write in the transaction that is open"
            )
        return session.execute(place.connect_beside(), command, self.database.path)

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

    def _execute_inside(self, connection: sqlite3.Connection, command: Statement) -> Any:
        if not self._is_own(connection):
            return self._joining.execute(connection, command)
        session.require_open(connection)
        return session.execute(connection, command, self.database.path)

    def _place(self) -> _Place:
        self._check_open()
        place: _Place | None = getattr(self._local, "place", None)
        if place is None:
            place = self._local.place = _Place(self.database)
            with self._mutex:
                self._places.add(place)
        return place

    @contextmanager
    def _using(self, place: _Place) -> Iterator[None]:
        with place.in_use:
            self._check_open()
            try:
                yield
            finally:
                if self._closed:
                    place.drop()

    def _is_own(self, connection: sqlite3.Connection) -> bool:
        place: _Place | None = getattr(self._local, "place", None)
        return place is not None and place.own is connection

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed("SQLite provider")


if TYPE_CHECKING:
    _: type[SyncProvider[sqlite3.Connection]] = SqliteProvider
