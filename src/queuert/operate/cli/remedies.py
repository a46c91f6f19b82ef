"""What to type against a reason why a job is not running."""

from __future__ import annotations

import shlex

from queuert.features.why import (
    Blocked,
    ClusterFull,
    Ended,
    FailedBefore,
    LimitFull,
    NotDue,
    OrderHeld,
    Paused,
    QueueFull,
    Reason,
    Running,
    SlotsBusy,
    Why,
)
from queuert.operate.pauses import target_of
from queuert.records.pauses import PauseTarget


def command_for(why: Why, reason: Reason) -> str | None:
    """The command that ends it, or that looks at what is in the way. None: there is no such one."""
    words = _words(why.chain_id, reason)
    return None if words is None else shlex.join(["queuert", *words])


def _words(chain_id: str, reason: Reason) -> list[str] | None:
    match reason:
        case NotDue() | FailedBefore():
            return ["trigger", chain_id]
        case Running(state="alive"):
            return ["cancel", chain_id]
        case Ended(status="failed"):
            return ["retry", chain_id]
        case Paused(target=target):
            return _resume(target)
        case Blocked(chains=(first, *_)):
            # The one that holds it up for ever comes first.
            return ["retry" if first.status == "failed" else "why", first.chain_id]
        case OrderHeld(status=status, job_id=job_id):
            return ["retry" if status == "failed" else "why", job_id]
        case LimitFull(held_by=(oldest, *_)):
            return ["why", oldest]
        case QueueFull(oldest=holder) | ClusterFull(oldest=holder) | SlotsBusy(oldest=holder) if holder is not None:
            return ["why", holder.job_id]
        case _:
            return None


def _resume(target: PauseTarget) -> list[str] | None:
    if target.scope == "key":
        return None
    texts = (target.name or target.scope, f"{target.scope}:{target.name}")
    return ["resume", next(text for text in texts if target_of(text) == target)]
