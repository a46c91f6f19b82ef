"""How a handler can end."""

from __future__ import annotations

from typing import Any

import msgspec

from queuert.worker.failure import EXPIRED

LEFT_OPEN = (
    "the handler returned with a client.transaction() open: what was done in it is rolled back. "
    "Open it in a `with` block, or use complete()"
)


class Returned(msgspec.Struct, frozen=True):
    """The handler returned a value, or the job to continue with."""

    value: Any


class Raised(msgspec.Struct, frozen=True):
    """The handler raised; or what stands around it did (then `code` says what)."""

    error: BaseException
    code: str | None = None


class SettledInThread(msgspec.Struct, frozen=True):
    """The handler's thread has completed the job in its own transaction."""


class Late(msgspec.Struct, frozen=True):
    """The deadline passed before user code began."""

    code: str = EXPIRED


Outcome = Returned | Raised | SettledInThread | Late
