"""Names that people type, looked up before they are used: a typo would pause or limit nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any

from queuert.base.own_types import is_own
from queuert.client.client import Client
from queuert.engine.operations.reading import MAX_PAGE
from queuert.errors import InvalidArgument
from queuert.jobs.versions import is_version_of, names_a_version
from queuert.operate.filters import types_known
from queuert.records.limits import split_lane
from queuert.records.pauses import PauseTarget

NAMED = 5
"""Names that are shown if none is near."""


class UnknownName(InvalidArgument):
    """Nothing with this name is known, so what is done to it would have no effect now."""


async def check_targets(client: Client[Any], targets: Sequence[PauseTarget]) -> None:
    """Raise `UnknownName` if a type, queue or limit is not known: it would pause nothing.

    A type is known if a job of it is stored, or if a worker has a handler for it, or had one. A
    queue is known while the database knows a worker that serves it.
    """
    paused = {pause.target for pause in await client.list_pauses()}
    for target in targets:
        if target in paused:
            continue
        if target.scope == "type":
            await _check_type(client, target.name)
        elif target.scope == "queue":
            await _check_queue(client, target.name)
        elif target.scope == "key":
            await check_limit(client, split_lane(target.name)[0])


async def check_limit(client: Client[Any], name: str) -> None:
    """The same for a limit: it is known if code declares it, or if it was changed."""
    known: dict[str, None] = {}
    cursor: str | None = None
    while True:
        page = await client.list_limits(limit=MAX_PAGE, cursor=cursor)
        known.update(dict.fromkeys(row.name for row in page.items))
        cursor = page.next_cursor
        if name in known:
            return
        if cursor is None:
            raise _unknown("limit", name, known)


async def _check_type(client: Client[Any], name: str) -> None:
    known = await types_known(client)
    if is_own(name) or name in known or any(is_version_of(each, name) for each in known):
        return
    if (await client.list_jobs(name, limit=1)).items or await _was_handled(client, name):
        return
    raise _unknown("job type", name, {each.rpartition("@")[0] if names_a_version(each) else each for each in known})


async def _check_queue(client: Client[Any], name: str) -> None:
    known = {queue.name for worker in await client.list_workers() for queue in worker.queues}
    if name not in known:
        raise _unknown("queue", name, known)


async def _was_handled(client: Client[Any], name: str) -> bool:
    sessions = client.sessions
    (last,) = await sessions.run(sessions.engine.state.last_handled([name]))
    return last is not None


def _unknown(what: str, name: str, known: Iterable[str]) -> UnknownName:
    others = sorted(each for each in known if not is_own(each))
    near = get_close_matches(name, others)
    if near:
        hint = f"did you mean {' or '.join(near)}?"
    elif others:
        hint = f"known are {', '.join(others[:NAMED])}{' and others' * (len(others) > NAMED)}"
    else:
        hint = "none is known yet"
    return UnknownName(f"no {what} {name!r} is known: {hint}")
