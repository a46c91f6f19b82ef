"""A transaction as users see it. The engine opens and ends it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol

from typing_extensions import TypeVar

from queuert.errors import TransactionClosed

Conn = TypeVar("Conn", default=Any)

Callback = Callable[[], object]
"""A function of the user's own, plain or async."""


class Callbacks(Protocol):
    """Functions that are called at the end of a transaction."""

    def after_commit(self, callback: Callback) -> None: ...
    def after_rollback(self, callback: Callback) -> None: ...


class Transaction(Generic[Conn]):
    """An open transaction, from `client.transaction()` or `client.after_commit(connection)`."""

    __slots__ = ("_connection", "_hooks", "_is_open")

    def __init__(self, connection: Conn, hooks: Callbacks) -> None:
        self._connection = connection
        self._hooks = hooks
        self._is_open = True

    @property
    def connection(self) -> Conn:
        """The driver's own connection. What you write with it commits together with the jobs.

        Raises `TransactionClosed` after the end of the transaction.
        """
        self._check_open()
        return self._connection

    @property
    def is_open(self) -> bool:
        """Whether the transaction can still be used."""
        return self._is_open

    def after_commit(self, callback: Callback) -> None:
        """Call a function after this transaction has committed, and not if it is rolled back.

        Callbacks run in the order of their registration, when the notifications of workers are on
        their way. If one raises an error, that is logged and counted in `client.hook_failures`, and
        the others still run.
        If a savepoint is rolled back, callbacks that were registered inside of it are dropped.

        Args:
            callback: A function without arguments. With an async client it may be async.
        """
        self._check_open()
        self._hooks.after_commit(callback)

    def after_rollback(self, callback: Callback) -> None:
        """Call a function after this transaction, or the savepoint that is open now, was rolled
        back.

        Like `after_commit` otherwise. If it is not known whether a COMMIT took effect, because the
        connection was lost or the task was cancelled meanwhile, callbacks of neither kind run.

        Args:
            callback: A function without arguments. With an async client it may be async.
        """
        self._check_open()
        self._hooks.after_rollback(callback)

    def _check_open(self) -> None:
        if not self._is_open:
            raise TransactionClosed("this transaction has ended: open another with client.transaction()")
