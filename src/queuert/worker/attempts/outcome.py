"""How an attempt can end."""

from __future__ import annotations

from typing import Any

import msgspec

from queuert.records.model import Settlement
from queuert.worker.base.failure import EXPIRED


class Returned(msgspec.Struct, frozen=True, gc=False):
    """The handler returned a value, or the job to continue with.

    There are many of these, and nothing that they hold refers back to them.
    """

    value: Any


class Raised(msgspec.Struct, frozen=True):
    """The handler raised; or code around it did (then `code` says what)."""

    error: BaseException
    code: str | None = None


class Settled(msgspec.Struct, frozen=True):
    """The job was settled in the transaction that the handler had left open.

    `more`: it has left dependents to be freed later.
    """

    settlement: Settlement
    more: bool = False


class EndedInside(msgspec.Struct, frozen=True):
    """In the transaction that the handler had left open, it has ended or deleted its own job."""


class Late(msgspec.Struct, frozen=True):
    """The deadline passed before user code began."""

    code: str = EXPIRED


Outcome = Returned | Raised | Settled | EndedInside | Late
