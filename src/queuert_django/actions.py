"""What can be done with selected chains and jobs in the admin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib.admin.helpers import ActionForm
from django.db import connections, transaction

from django import forms
from queuert import Chain, QueuertError, SyncClient
from queuert.errors import InvalidArgument
from queuert.jobs.filter_text import duration_of
from queuert.model import OPEN

_atomic: Any = transaction.atomic


class PauseForm(ActionForm):
    """The action, and what a pause is given."""

    reason = forms.CharField(required=False, widget=forms.TextInput(attrs={"placeholder": "pause: reason"}))
    until = forms.CharField(
        required=False, widget=forms.TextInput(attrs={"placeholder": "pause: until, like 2h", "size": 18})
    )


@dataclass(frozen=True)
class Change:
    """`carry_out` takes the client, the connection, ids of chains, and who does it."""

    name: str
    done: str
    allowed: Callable[[str | None], bool]
    needs: str
    carry_out: Callable[[SyncClient[Any], Any, Sequence[str], str], list[Chain[Any]]]


RETRY = Change(
    "retry",
    "retried",
    lambda status: status == "failed",
    "failed",
    lambda client, tx, ids, by: client.retry(tx, ids, by=by),
)
CANCEL = Change(
    "cancel",
    "cancelled",
    lambda status: status in OPEN,
    "blocked, pending or running",
    lambda client, tx, ids, by: client.cancel(tx, ids, by=by),
)
TRIGGER = Change(
    "trigger",
    "made due",
    lambda status: status == "pending",
    "pending",
    lambda client, tx, ids, by: client.trigger(tx, ids, by=by),
)


@dataclass(frozen=True)
class Outcome:
    text: str
    changed: Sequence[Chain[Any]] = ()
    complete: bool = True
    """Everything that was asked for has been done."""


def change_chains(client: SyncClient[Any], alias: str, change: Change, ids: Sequence[str], by: str) -> Outcome:
    """Change the chains that can be changed so: all of them in one transaction, or none."""
    found = client.list_chains(ids=ids, limit=1000).items
    fit = [chain.id for chain in found if change.allowed(chain.status)]
    changed: list[Chain[Any]] = []
    if fit:
        try:
            with _atomic(using=alias):
                changed = change.carry_out(client, connections[alias], fit, by)
        except QueuertError as error:
            return Outcome(f"nothing was changed: {error}", complete=False)
    left = len(ids) - len(fit)
    more = f"; left as they are: {left}, because they are not {change.needs}" if left else ""
    return Outcome(f"{change.done}: {_counted(len(changed), 'chain')}{more}", changed, complete=not left)


def pause_types(
    client: SyncClient[Any], alias: str, types: Sequence[str], *, reason: str, until: str, by: str
) -> Outcome:
    try:
        end = _end(until)
        with _atomic(using=alias):
            for name in types:
                client.pause(connections[alias], name, until=end, reason=reason or None, by=by)
    except QueuertError as error:
        return Outcome(f"nothing was paused: {error}", complete=False)
    return Outcome(f"paused: {', '.join(types)}")


def resume_types(client: SyncClient[Any], alias: str, types: Sequence[str], *, by: str) -> Outcome:
    with _atomic(using=alias):
        ended = [name for name in types if client.resume(connections[alias], name, by=by) is not None]
    others = [name for name in types if name not in ended]
    texts = [f"{word}: {', '.join(names)}" for word, names in (("resumed", ended), ("not paused", others)) if names]
    return Outcome("; ".join(texts), complete=not others)


def _end(text: str) -> datetime | timedelta | None:
    if not text.strip():
        return None
    try:
        found = duration_of(text.strip()) or datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError):
        raise InvalidArgument(
            f"until: {text!r} is neither a duration, like 15m or 2h, nor a time, like 2026-11-17T12:00"
        ) from None
    if isinstance(found, datetime) and found <= datetime.now(UTC):
        raise InvalidArgument(f"until: {text!r} is over: the pause would have ended already")
    return found


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
