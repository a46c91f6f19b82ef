"""The locks of workers, held by a listening connection.

They are locks of the session: the server releases them when the connection ends, and not before.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from queuert.adapters.postgres.installation import WORKER_SPACE

Ask = Callable[[str], Awaitable[bool]]
"""Sends a query that has a boolean as its answer."""


class SessionLocks:
    """What one connection holds.

    A pooler gives a session to another client after a transaction, and the lock with it. It is
    recognised by the id of the session: the driver has a different one from the server.
    """

    def __init__(self, session: int, ask: Ask) -> None:
        self._session = session
        self._ask = ask
        self._held: set[int] = set()

    async def hold(self, key: int) -> int | None:
        if key not in self._held:
            if not await self._ask(
                f"SELECT CASE WHEN pg_backend_pid() = {self._session} "
                f"THEN pg_try_advisory_lock({WORKER_SPACE}, {key}) ELSE false END"
            ):
                return None
            self._held.add(key)
        return self._session

    async def release(self, key: int) -> None:
        if key in self._held:
            self._held.discard(key)
            await self._ask(f"SELECT pg_advisory_unlock({WORKER_SPACE}, {key})")
