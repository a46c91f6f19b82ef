"""Pausing and resuming at run time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from queuert.engine.engine import Engine
from queuert.engine.transaction import Hooks
from queuert.ports.program import Program
from queuert.records.model import When
from queuert.records.pauses import Pause, PauseTarget

T = TypeVar("T")


def for_each(targets: Sequence[PauseTarget], make: Callable[[PauseTarget], Program[T]]) -> Program[T]:
    """For all names that jobs of one type are stored with. Returns the answer for the first that
    has one.
    """
    answers: list[T] = []
    for target in targets:
        answers += [(yield from make(target))]
    return next((answer for answer in answers if answer is not None), answers[0])


def pause(
    engine: Engine,
    hooks: Hooks,
    target: PauseTarget,
    *,
    until: When | None,
    reason: str | None,
    by: str | None,
    cancel_running: bool,
) -> Program[Pause]:
    made = yield from engine.state.pause(target, until=until, reason=reason, by=by, cancel_running=cancel_running)
    engine.notifications(hooks).add("pause_changed", str(target))
    return made


def resume(engine: Engine, hooks: Hooks, target: PauseTarget) -> Program[Pause | None]:
    ended = yield from engine.state.resume(target)
    if ended is not None:
        engine.notifications(hooks).add("pause_changed", str(target))
    return ended
