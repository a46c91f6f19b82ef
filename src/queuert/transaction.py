"""Transactions as the client hands them around, and the work that waits for their commit.

`Hooks` is a generic container of things to do after the commit. A hook buffers state while the
transaction runs; a savepoint's rollback puts that state back; a rollback throws it away; after the
commit each hook's steps are carried out. A step that fails is logged and counted, and neither
undoes nor hides the commit.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Generic, Protocol

from typing_extensions import TypeVar

from queuert.errors import TransactionClosed
from queuert.failure_log import FailureLog

logger = logging.getLogger("queuert.transaction")

Conn = TypeVar("Conn", default=Any)
Step = Callable[[], Awaitable[None] | None]


class Hook(Protocol):
    """One kind of after-commit work."""

    order: int
    """Hooks are flushed in this order, lowest first."""

    def checkpoint(self) -> Callable[[], None]:
        """Remember the state as it is; the function returned puts it back."""
        ...

    def steps(self) -> Iterator[Step]:
        """What is to be done after the commit.

        If a step fails, the rest of this hook is skipped.
        """
        ...


H = TypeVar("H", bound=Hook)


class Hooks:
    """The after-commit work of one transaction, by name."""

    __slots__ = ("_by_name", "failures")

    def __init__(self) -> None:
        self._by_name: dict[str, Hook] = {}
        self.failures = 0

    def use(self, name: str, make: Callable[[], H]) -> H:
        """The hook of this name, made on first use."""
        hook = self._by_name.get(name)
        if hook is None:
            hook = self._by_name[name] = make()
        return hook  # type: ignore[return-value]  # one name is always one type

    def checkpoint(self) -> Callable[[], None]:
        known = [(name, hook, hook.checkpoint()) for name, hook in self._by_name.items()]

        def roll_back() -> None:
            self._by_name = {name: hook for name, hook, _ in known}
            for _, _, restore in known:
                restore()

        return roll_back

    def discard(self) -> None:
        self._by_name.clear()

    async def flush(self, log: FailureLog | None = None) -> None:
        log = log or FailureLog(logger)
        for hook in self._in_order():
            name, did_something = type(hook).__name__, False
            try:
                for step in hook.steps():
                    pending = step()
                    if inspect.isawaitable(pending):
                        await pending
                    did_something = True
            except Exception as error:
                self.failures += 1
                log.failed(
                    name, error, "after-commit work failed (%s); the transaction is committed, nothing is lost", name
                )
            else:
                if did_something:
                    log.worked(name)

    def _in_order(self) -> list[Hook]:
        hooks = sorted(self._by_name.values(), key=lambda hook: hook.order)
        self._by_name = {}
        return hooks


class Enlisted:
    """The after-commit work of a transaction whose end the provider hears of (see
    `queuert.ports.provider`).
    """

    __slots__ = ("_flush", "hooks")

    def __init__(self, flush: Callable[[Hooks], Awaitable[None] | None]) -> None:
        self.hooks = Hooks()
        self._flush = flush

    def checkpoint(self) -> Callable[[], None]:
        return self.hooks.checkpoint()

    def flush(self) -> Awaitable[None] | None:
        return self._flush(self.hooks)


class Transaction(Generic[Conn]):
    """An open transaction, from `client.transaction()` or `client.after_commit(connection)`."""

    __slots__ = ("_connection", "_is_open")

    def __init__(self, connection: Conn) -> None:
        self._connection = connection
        self._is_open = True

    @property
    def connection(self) -> Conn:
        """The driver's own connection. What you write with it commits together with the jobs.

        Raises `TransactionClosed` after the end of the transaction.
        """
        if not self._is_open:
            raise TransactionClosed("this transaction has ended: open another with client.transaction()")
        return self._connection

    @property
    def is_open(self) -> bool:
        """Whether the transaction can still be used."""
        return self._is_open


class OpenTransaction(Transaction[Conn]):
    """A transaction as clients and workers see it."""

    __slots__ = ("_given_back", "first", "hooks", "joined", "provider")

    def __init__(self, connection: Conn, provider: object, *, joined: bool, hooks: Hooks | None = None) -> None:
        super().__init__(connection)
        self._given_back = False
        self.joined = joined
        self.hooks = Hooks() if hooks is None else hooks
        self.provider = provider
        self.first: Any = None
        """The result of the program that the transaction began with."""

    def end(self) -> None:
        """From here on the transaction cannot be used any more."""
        self._is_open = False

    def give_back(self) -> None:
        """It is committed or rolled back, and others may use its connection."""
        self._given_back = True

    def connection_in_use(self) -> Conn | None:
        """The connection, also while the transaction is being ended."""
        return None if self._given_back else self._connection
