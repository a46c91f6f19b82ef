"""Django's connection handling around async handlers. Plain `def` handlers have it without being asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import sync_to_async
from django.db import close_old_connections

from queuert import Middleware


class CloseOldConnections(Middleware):
    """For `async def` handlers that use the ORM (`await Order.objects.aget(…)`): `Handlers(middleware=[…])`.

    The ORM's async methods run in one thread that stays, so its connections grow old, and may be lost, unnoticed.
    """

    async def wrap_handler(self, attempt: Any, call_next: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ARG002
        close = sync_to_async(close_old_connections)
        await close()
        try:
            return await call_next()
        finally:
            await close()
