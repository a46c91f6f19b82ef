"""What one caller submits, and its answer."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from queuert.engine.transaction import Hooks
from queuert.records.model import Created, JobRow, NewJob


class Item:
    """The jobs of one caller. All of them are stored, or none."""

    __slots__ = ("answer", "hooks", "jobs")

    def __init__(self, jobs: Sequence[NewJob], hooks: Hooks | None, answer: Any) -> None:
        self.jobs = jobs
        self.hooks = hooks
        """None: the group announces its jobs."""
        self.answer: asyncio.Future[list[Created]] | Future[list[Created]] = answer

    def fail(self, error: BaseException) -> None:
        """Each caller gets an error of its own: it may add notes to it, and tracebacks grow."""
        if self.answer.done():
            return
        if isinstance(error, asyncio.CancelledError):
            self.answer.cancel()
            return
        try:
            own = copy.copy(error)
        except Exception:  # it cannot be copied
            own = error
        own.__cause__, own.__suppress_context__ = error.__cause__, error.__suppress_context__
        self.answer.set_exception(own)


def as_created(row: JobRow) -> Created:
    if row.status == "blocked":
        return Created(row.id, row.chain_id, "blocked", ready=False)
    return Created(row.id, row.chain_id, "pending", ready=True)
