"""What a driver must do: the calls in which psycopg, asyncpg and SQLAlchemy differ.

`session` is written over these calls. Those of a blocking driver are coroutines too, but never
suspend (see `queuert.adapters.waiting`).
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from enum import Enum, auto
from typing import Any, Generic, TypeVar

from queuert.adapters.postgres.drivers import errors
from queuert.adapters.postgres.drivers.shares import Shares
from queuert.adapters.postgres.drivers.sources import Source
from queuert.adapters.waiting import Waiting
from queuert.errors import QueuertError, StorageUnavailable, TransactionMisused
from queuert.ports.provider import TimeLimit

C = TypeVar("C")

GUARD = "queuert_guard"
"""A savepoint that lasts as long as its transaction. If it is gone, code inside has ended that
transaction, even if another one is open now."""

LAST = "queuert_last"
"""A savepoint before the command that is sent in one message with COMMIT."""

_names = (f"queuert_{number}" for number in itertools.count(1))


class Status(Enum):
    """The transaction of a connection, as far as the client knows without asking the server."""

    OPEN = auto()
    FAILED = auto()
    """Open, but a statement has failed. Some drivers cannot tell this from `OPEN`."""
    IDLE = auto()
    IMPLICIT = auto()
    """None is open, but the next statement begins one."""
    CLOSED = auto()
    """The user has closed the connection."""
    LOST = auto()
    """The connection is gone. Some drivers report this also for what the user has closed inside its
    transaction."""


_UNUSABLE = {
    Status.FAILED: errors.FAILED,
    Status.IDLE: errors.NOT_BEGUN,
    Status.CLOSED: errors.CLOSED,
}


def require_transaction(status: Status) -> None:
    """Raise `TransactionMisused` if a statement would fail, or would be committed at once; and
    `StorageUnavailable` if the connection was lost.
    """
    if status is Status.LOST:
        raise StorageUnavailable(errors.LOST_INSIDE)
    problem = _UNUSABLE.get(status)
    if problem is not None:
        raise TransactionMisused(problem)


def ended_badly(status: Status) -> QueuertError:
    """Why a transaction with this status, at the end of its block, cannot be committed."""
    if status is Status.LOST:
        return StorageUnavailable(errors.LOST_INSIDE)
    failed = status in (Status.OPEN, Status.FAILED)
    return TransactionMisused(errors.SWALLOWED if failed else errors.ENDED_INSIDE)


class Declined(Exception):
    """The command that was sent with COMMIT has failed. It is undone, and the transaction is open
    as before."""


class Transaction(Generic[C]):
    """A transaction of our own, as a driver sees it."""

    def __init__(self, connection: C, first: Any = None) -> None:
        self.connection = connection
        self.first = first
        """The command that it begins with, or None. With one, the transaction has a guard."""
        self.answer: Any = None
        """The answer to `first`, set by the driver."""
        self.begun: Any = None
        """The driver's own transaction object, set by the driver as soon as BEGIN has succeeded."""
        self.ended = False
        """It is committed, or rolled back because that failed."""


class Driver(ABC, Generic[C]):
    waiting: Waiting
    error_types: tuple[type[Exception], ...]
    """What the driver raises when a statement fails or the connection is lost."""
    reads_committed: bool | None = None
    """Whether a statement that runs alone is read committed by default. None: not known yet."""

    # Without I/O

    @abstractmethod
    def status(self, connection: C) -> Status: ...

    def is_open(self, connection: C) -> bool:
        """Whether a transaction is open, even a failed one."""
        return self.status(connection) in (Status.OPEN, Status.FAILED)

    def require_transaction(self, connection: C) -> None:
        require_transaction(self.status(connection))

    @abstractmethod
    def check(self, connection: C) -> None:
        """Raise `TransactionMisused` if the user's connection cannot be joined."""

    @abstractmethod
    def is_lost(self, error: BaseException) -> bool:
        """Whether an error is about the connection, and not about what was sent over it."""

    @abstractmethod
    def translated(self, error: Any, *, inside: bool) -> BaseException:
        """See `errors.translated`."""

    @abstractmethod
    def abandon(self, connection: C) -> bool:
        """Cut the connection off from its server, without waiting for it. What runs on the
        connection fails, the server rolls back, and `give_back` throws the connection away. May be
        called in any thread for a blocking driver. False: this is not possible."""

    # Connections

    @abstractmethod
    async def take(self, command: Any, limit: TimeLimit | None = None) -> C:
        """A connection outside of any transaction: to run this command alone or, if it is None, for
        a transaction. A cancellation ends the wait at once. With a limit, the command is one of the
        worker's own."""

    @abstractmethod
    async def give_back(self, connection: C) -> None:
        """Give back what was taken. Runs to its end even if it is cancelled. If the server is
        silent, it takes limited time."""

    @abstractmethod
    async def close(self) -> None:
        """Close the connections that we have opened."""

    # The worker's own connections: see `queuert.ports.provider.Upkeep`

    shares: Shares | None = None
    """None: the number of connections is not known, or not limited."""

    def distrust_idle(self) -> None:
        """A connection has hung: do not use those that were idle meanwhile."""

    @abstractmethod
    async def reserve(self, statement_timeout: float) -> None: ...

    @abstractmethod
    async def unreserve(self) -> None: ...

    # Transactions of our own. `session` shields commit and roll_back from cancellation.

    @abstractmethod
    async def begin(self, tx: Transaction[C]) -> None:
        """Begin, read committed. With `tx.first`, set the guard and run it.

        BEGIN alone runs to its end even if it is cancelled; `first` is cancelled on the server.
        After an error `session` rolls back, if `tx.begun` is set."""

    sends_last = False
    """Whether `commit` can send a command in the same message."""

    @abstractmethod
    async def commit(self, tx: Transaction[C], last: str = "") -> bool:
        """Release the guard, and commit. False: a statement had failed, so nothing is committed.

        Raises a `QueuertError` if COMMIT could not be sent, and the driver's error if it failed.
        `last` is SQL to send before it in the same message. Raises `Declined` if that fails, or
        anything else before COMMIT, and if what it did could be undone."""

    @abstractmethod
    async def roll_back(self, tx: Transaction[C]) -> None:
        """Roll back, if the transaction is still open."""

    # Statements and savepoints, in a transaction of our own or of the user's. `session` shields
    # savepoints from cancellation.

    @abstractmethod
    async def run(self, connection: C, command: Any) -> Any:
        """Run a command. If cancelled, cancel it on the server and leave the connection usable."""

    async def send(self, connection: C, words: str) -> Any:
        """Send SQL without values."""
        raise NotImplementedError

    async def save(self, connection: C) -> Any:
        """Set a savepoint."""
        name = next(_names)
        await self.send(connection, f"SAVEPOINT {name}")
        return name

    async def release(self, connection: C, savepoint: Any) -> bool:
        """Release a savepoint. False: a statement has failed since it was set."""
        status = self.status(connection)
        if status is Status.FAILED:
            return False
        if status is not Status.OPEN:
            raise ended_badly(status)
        try:
            await self.send(connection, f"RELEASE {savepoint}")
        except TransactionMisused as misuse:
            if errors.sqlstate(misuse) == errors.IN_FAILED_TRANSACTION:
                return False
            raise
        return True

    async def undo(self, connection: C, savepoint: Any) -> bool:
        """Roll back to a savepoint, and release it. False: it is gone, and its transaction too."""
        if not self.is_open(connection):
            return False
        try:
            await self.send(connection, f"ROLLBACK TO {savepoint}; RELEASE {savepoint}")
        except QueuertError:
            return False
        except self.error_types:  # a deadlock or a serialization failure
            return False
        return True


class PooledDriver(Driver[C]):
    """A driver whose connections come from a source."""

    _source: Source[C]

    async def close(self) -> None:
        await self._source.close()

    @property
    def shares(self) -> Shares | None:  # type: ignore[override]
        return self._source.shares

    def distrust_idle(self) -> None:
        self._source.distrust_idle()

    async def reserve(self, statement_timeout: float) -> None:
        await self._source.reserve(statement_timeout)

    async def unreserve(self) -> None:
        await self._source.unreserve()
