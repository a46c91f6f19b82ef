"""Before a worker begins: is there a database with our tables, and are there enough connections?"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from queuert.base.backoff import Recovery
from queuert.engine.sessions import Sessions
from queuert.errors import SchemaTooNew, StorageError, StorageNotADatabase, StorageReadOnly
from queuert.ports.provider import TimeLimit

logger = logging.getLogger("queuert.worker")

HOPELESS = (SchemaTooNew, StorageNotADatabase, StorageReadOnly)
"""Errors at the start that a retry cannot repair."""


async def has_schema(
    sessions: Sessions[Any], types: Sequence[str], limit: TimeLimit, recovery: Recovery, *, limited: bool
) -> bool:
    """Whether the schema is up to date. If not, the main loop goes on trying.

    With a limit of tries, wait until the database answers, or raise.
    """
    while True:
        try:
            await sessions.ensure_schema()
            if limited:  # a client may leave the schema alone, and then nothing was asked yet
                await sessions.run_within(limit, sessions.engine.state.next_available_in(types))
            break
        except HOPELESS:
            raise
        except (StorageError, OSError) as error:
            if not limited:
                logger.error("the database is unavailable, the worker keeps trying: %s", error)
                return False
            delay = recovery.next_delay()
            if recovery.exhausted:
                raise
            logger.error("the database is unavailable, trying again in %.1f s: %s", delay, error)
            await asyncio.sleep(delay)
    recovery.reset()
    return True


def check_room(worker_id: str, sessions: Sessions[Any], slots: int) -> None:
    """Whether each handler can have a transaction open."""
    room = sessions.room()
    if room is not None and slots > room[0]:
        logger.warning(
            "worker %s runs %d handlers at once, and its pool of %d connections has %d for them: handlers that "
            "open transactions may have to wait. A pool of %d connections would be enough",
            worker_id, slots, sum(room), room[0], slots + room[1], extra={"worker_id": worker_id},
        )  # fmt: skip
