"""Testing a Django project with jobs: `TestCase`, `TransactionTestCase`, pytest-django."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager

from queuert import testing
from queuert.adapters.django.connection import Strict
from queuert.base.contexts import context
from queuert.testing import SyncRunning
from queuert_django.clients import get_client
from queuert_django.discovery import find_handlers

__all__ = ["atomic_required", "clean", "running"]


def running(using: str = "default", *, eager: bool = False) -> AbstractContextManager[SyncRunning, None]:
    """Run the plain `def` handlers of all apps in the thread of the test.

        with running() as run:
            self.client.post("/orders", {"product": "lamp"})
            run.until_idle()

    It works inside the transaction of a `TestCase`. `async def` handlers cannot run there.

    Args:
        using: The alias of the database in DATABASES (default: "default").
        eager: Run jobs as soon as the transaction that started them is committed (default: False).
            A `TestCase` never commits: use `captureOnCommitCallbacks(execute=True)` there.
    """
    return testing.running(get_client(using), find_handlers(), eager=eager)


@context
def atomic_required() -> Iterator[None]:
    """In the block, a chain can only be started inside an atomic block of your own code.

    A `TestCase` runs each test inside a block. So a view without `transaction.atomic()` works in
    the test, and raises `TransactionRequired` in production. Put this around the call of the view.
    """
    before, Strict.on = Strict.on, True
    try:
        yield
    finally:
        Strict.on = before


def clean(using: str = "default") -> None:
    """Delete all chains. `TransactionTestCase` empties only the tables of models: call this in its
    `tearDown`.

    Args:
        using: The alias of the database in DATABASES (default: "default").
    """
    testing.clean(get_client(using))
