"""Django's connection handling for async handlers. Plain `def` handlers have it by default."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import sync_to_async
from django.db import close_old_connections

from queuert import Middleware


class CloseOldConnections(Middleware):
    """Middleware for `async def` handlers that use the ORM (`await Order.objects.aget(…)`).

    Use it as `Handlers(middleware=[CloseOldConnections()])`. The ORM's async methods run in one
    permanent thread. Without this middleware, its connections are never closed, even when they are
    old or lost.
    """

    async def wrap_handler(self, attempt: Any, call_next: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ARG002
        close = sync_to_async(close_old_connections)
        await close()
        try:
            return await call_next()
        finally:
            await close()
