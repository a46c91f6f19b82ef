"""Removing what tests have left in a database."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, overload

from queuert.base.blocking import run_blocking
from queuert.client.base import BaseClient
from queuert.client.client import Client
from queuert.client.sync_client import SyncClient
from queuert.errors import InvalidArgument
from queuert.records.listings import ChainFilter, PageRequest


@overload
def clean(client: Client[Any]) -> Coroutine[Any, Any, None]: ...
@overload
def clean(client: SyncClient[Any]) -> None: ...
def clean(client: BaseClient[Any]) -> Coroutine[Any, Any, None] | None:
    """Delete all chains and schedules, end all pauses, and undo what was set for limits.

    If a worker is running, that is an `InvalidArgument` error: it would lose its schedules.
    Use it between tests that share a database. With an async client, await it.

    Args:
        client: A client of the database.
    """
    if isinstance(client, Client):
        return _clean(client)
    run_blocking(_clean(client))
    return None


async def _clean(client: BaseClient[Any]) -> None:
    sessions = client.sessions
    state = sessions.engine.state
    alive = [row.id for row in await sessions.run(state.list_workers()) if row.state == "alive"]
    if alive:
        raise InvalidArgument(
            f"clean() would delete the schedules of workers that are running: {', '.join(alive)}. Stop them first"
        )
    ids: list[str] = []
    after: str | None = None
    while True:
        listed = await sessions.run(state.list_chains(ChainFilter(), PageRequest(limit=1000, after=after)))
        ids += [row.first.id for row in listed.rows]
        after = listed.rows[-1].first.id if listed.rows else None
        if len(listed.rows) < 1000:
            break
    if ids:
        # All at once: some wait for others.
        await sessions.run(state.delete_chains(ids, cascade=True))
    while rows := (await sessions.run(state.list_schedules(1000))).rows:
        await sessions.run(state.delete_schedules([row.name for row in rows if row is not None]))
    for pause in await sessions.run(state.list_pauses()):
        await sessions.run(state.resume(pause.target))
    last: tuple[str, str | None] | None = None
    while limits := await sessions.run(state.list_limits(1000, last)):
        last = limits[-1].name, limits[-1].key
        for limit in limits:
            if limit.is_set:
                await sessions.run(state.clear_limit(limit.name, limit.key))
