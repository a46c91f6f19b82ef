"""What can be done with selected chains and jobs in the admin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.admin.helpers import ActionForm
from django.db import connections, transaction

from django import forms
from queuert import Chain, QueuertError, SyncClient
from queuert.base.blocking import run_blocking
from queuert.operate.changes import BY_NAME, Change
from queuert.operate.pauses import end_of_pause

_atomic: Any = transaction.atomic


class PauseForm(ActionForm):
    """The action, and what a pause is given."""

    reason = forms.CharField(required=False, widget=forms.TextInput(attrs={"placeholder": "pause: reason"}))
    until = forms.CharField(
        required=False, widget=forms.TextInput(attrs={"placeholder": "pause: until, like 2h", "size": 18})
    )


RETRY, CANCEL, TRIGGER = (BY_NAME[name] for name in ("retry", "cancel", "trigger"))


@dataclass(frozen=True)
class Outcome:
    text: str
    changed: Sequence[Chain[Any]] = ()
    complete: bool = True
    """Everything that was asked for has been done."""


def change_chains(client: SyncClient[Any], alias: str, change: Change, ids: Sequence[str], by: str) -> Outcome:
    """Change the chains that can be changed so: all of them in one transaction, or none."""
    found = client.list_chains(ids=ids, limit=1000).items
    fit = [chain.id for chain in found if run_blocking(change.allows(client, chain))]
    changed: list[Chain[Any]] = []
    if fit:
        try:
            with _atomic(using=alias):
                changed = getattr(client, change.name)(connections[alias], fit, by=by)
        except QueuertError as error:
            return Outcome(f"nothing was changed: {error}", complete=False)
    left = len(ids) - len(fit)
    more = f"; left as they are: {left}, because they are not {change.needs}" if left else ""
    return Outcome(f"{change.done}: {_counted(len(changed), 'chain')}{more}", changed, complete=not left)


def pause_types(
    client: SyncClient[Any], alias: str, types: Sequence[str], *, reason: str, until: str, by: str
) -> Outcome:
    try:
        end = end_of_pause(until.strip()) if until.strip() else None
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


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
