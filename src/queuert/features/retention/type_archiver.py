"""Archives the chains of one type, in steps beside the worker's own work."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from queuert.base.backoff import Backoff, Recovery
from queuert.base.failure_log import FailureLog
from queuert.engine.sessions import Sessions
from queuert.features.retention.archiving import Archiver
from queuert.records.archive import Archive

logger = logging.getLogger("queuert.retention")

STEP = (50, 500)
"""Chains that are archived in one transaction, at least and at most."""
LONG = 0.25
"""Seconds. After a step that takes longer, the next steps are smaller. On SQLite, other writers
wait for a step.
"""
REST = 1.0
"""How long to rest after a step, as a multiple of the time that it took."""


class TypeArchiver:
    def __init__(
        self, worker_id: str, sessions: Sessions[Any], type_name: str, archive: Archive, backoff: Backoff
    ) -> None:
        self._worker_id = worker_id
        self._type_name = type_name
        self._archiver = Archiver(sessions, type_name, archive, blocking=False)
        self._recovery = Recovery(backoff)
        self._log = FailureLog(logger)
        self._limit = STEP[0]
        self._begin_at = 0.0

    @property
    def may_begin(self) -> bool:
        """Whether it may try. After a failure, it waits."""
        return time.monotonic() >= self._begin_at

    async def run(self) -> None:
        """Archive until nothing is left, or until it fails."""
        number = 0
        try:
            while done := (await self._step()):
                number += done
        except Exception as error:
            self._limit = STEP[0]
            self._begin_at = time.monotonic() + self._recovery.next_delay()
            self._log.failed("archiving", error, "worker %s could not archive chains of %s: none is deleted, it tries "
                             "again", self._worker_id, self._type_name, extra=self._about)  # fmt: skip
        else:
            self._recovery.reset()
            self._log.worked("archiving")
        if number:
            logger.info("%d chains of %s were archived and deleted: they had been kept long enough", number,
                        self._type_name, extra=self._about)  # fmt: skip

    @property
    def _about(self) -> dict[str, str]:
        return {"worker_id": self._worker_id, "job_type": self._type_name}

    async def _step(self) -> int:
        began = time.monotonic()
        done = await self._archiver.step(self._limit)
        took = time.monotonic() - began
        if took > LONG:
            self._limit = max(STEP[0], self._limit // 2)
        elif took < LONG / 3:
            self._limit = min(STEP[1], self._limit * 2)
        if done.chains:
            await asyncio.sleep(took * REST)
        return done.chains
