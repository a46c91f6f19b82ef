"""What people name to pause it, and until when."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from queuert.client.client import Client
from queuert.errors import InvalidArgument
from queuert.jobs.filter_text import duration_of
from queuert.jobs.versions import is_version_of
from queuert.operate.filters import versions_known
from queuert.records.limits import SEPARATOR
from queuert.records.pauses import PauseTarget


def target_of(text: str) -> PauseTarget:
    """From `charge-card`, `type:charge-card`, `queue:mail` or `everything`. A key of a limit is
    named by `target_text` only: people give the limit and the key on their own.
    """
    if text == "everything":
        return PauseTarget("everything")
    scope, colon, name = text.partition(":")
    if not text or (colon and scope in ("queue", "type") and not name):
        raise InvalidArgument(f"{text!r} has no name: give NAME, type:NAME, queue:NAME or everything")
    if colon and scope == "queue":
        return PauseTarget("queue", name)
    if colon and scope == "key" and SEPARATOR in name:
        return PauseTarget("key", name)
    return PauseTarget("type", name if colon and scope == "type" else text)


def target_text(target: PauseTarget) -> str:
    """What `target_of` reads."""
    return target.scope if target.scope == "everything" else f"{target.scope}:{target.name}"


def time_or_duration(text: str) -> datetime | timedelta:
    """A time, in the local zone unless it has one, or a duration."""
    try:
        return duration_of(text) or datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise InvalidArgument(
            f"{text!r} is neither a duration, like 90s, 15m, 2h or 3d, nor a time, like 2026-11-17T12:00"
        ) from None


def end_of_pause(text: str) -> datetime | timedelta:
    """When a pause ends by itself."""
    found = time_or_duration(text)
    if isinstance(found, datetime) and found <= datetime.now(UTC):
        raise InvalidArgument(f"{text!r} is over: the pause would have ended already")
    return found


async def with_versions(
    client: Client[Any], targets: Sequence[PauseTarget], *, paused: bool = False
) -> list[PauseTarget]:
    """Each once, and for a job type also the names of its other versions, like `charge@2`: those
    that are known, or those that are paused.
    """
    if paused:
        known = {pause.target.name for pause in await client.list_pauses() if pause.target.scope == "type"}
    else:
        known = await versions_known(client)
    found: dict[PauseTarget, None] = {}
    for each in targets:
        found[each] = None
        if each.scope == "type":
            others = sorted(name for name in known if is_version_of(name, each.name))
            found.update(dict.fromkeys(PauseTarget("type", name) for name in others))
    return list(found)
