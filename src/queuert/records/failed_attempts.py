"""What is stored of attempts that failed or were lost."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

Outcome = Literal["failed", "lost"]

KEPT = 20
"""Attempts of a job that are kept: the last ones."""
LONGEST_MESSAGE = 500
"""Characters of an error's message that are kept."""


class FailedAttempt(msgspec.Struct, frozen=True):
    """An attempt of a job that failed, or whose worker was lost. Times are by the database's
    clock.
    """

    number: int
    """The number of the attempt. Retrying a failed job by hand counts from 1 again."""
    outcome: Outcome
    """"failed", or "lost" if its worker stopped renewing the lease."""
    begun_at: datetime | None
    """When the job was claimed for it."""
    ended_at: datetime
    """When it was settled, or taken back."""
    worker_id: str | None
    """The id of the worker."""
    code: str | None
    """The code of the error, as in `chain.last_error`."""
    message: str | None
    """The beginning of the error's message: 500 characters at most."""


class _Error(msgspec.Struct):
    code: str | None = None
    message: str | None = None


_decode = msgspec.json.Decoder(_Error).decode


def told(error: bytes) -> tuple[str | None, str | None]:
    """The code and the message in an error record, as they are stored."""
    try:
        found = _decode(error)
    except msgspec.MsgspecError:
        return None, None
    return _text(found.code), _text(found.message)


def _text(text: str | None) -> str | None:
    """Without NUL, which not every database can store."""
    return None if text is None else text[:LONGEST_MESSAGE].replace("\0", "\\0")
