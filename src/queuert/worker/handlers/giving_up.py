"""Errors after which a handler wants no further attempt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from queuert.base.arguments import check_text
from queuert.errors import InvalidArgument, JobError, Reschedule
from queuert.worker.base import failure

ErrorKind: TypeAlias = type[BaseException] | str
"""An exception class, or the code of an error record."""

MAX_CODE_LENGTH = 1000


class GiveUpOn:
    """The errors that a handler gives up on, by class and by code."""

    __slots__ = ("_classes", "_codes", "lost_workers")

    def __init__(self, kinds: Sequence[ErrorKind] | None = ()) -> None:
        always = () if kinds is None else (failure.INVALID_OUTPUT,)
        self._classes = tuple(kind for kind in kinds or () if isinstance(kind, type))
        self._codes = frozenset((*always, *(kind for kind in kinds or () if isinstance(kind, str))))
        self.lost_workers = failure.LEASE_EXPIRED in self._codes
        """Whether a job that was taken back from a lost worker must not run again."""

    def includes(self, error: BaseException, code: str) -> bool:
        """Whether this error ends the job, however many attempts it has left."""
        if code in self._codes or isinstance(error, self._classes):
            return True
        # A subclass may have its own __init__, and forget the argument there.
        return isinstance(error, JobError) and not getattr(error, "retry", True)


def check_give_up_on(kinds: Any, type_name: str) -> GiveUpOn:
    """The errors as they were given to `handles`, checked. None: it gives up on nothing."""
    if kinds is None:
        return GiveUpOn(None)
    if isinstance(kinds, str | type) or not isinstance(kinds, Sequence):
        raise InvalidArgument(
            f"the handler of {type_name!r}: give_up_on takes a tuple of exception classes and error codes, "
            f"got {kinds!r}; a tuple of one is written (…,)"
        )
    for kind in kinds:  # pyright: ignore[reportUnknownVariableType]
        if isinstance(kind, str):
            check_text(kind, f"the handler of {type_name!r}: a code in give_up_on", MAX_CODE_LENGTH)
        elif not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise InvalidArgument(
                f"the handler of {type_name!r}: give_up_on takes exception classes and error codes, got {kind!r}"
            )
        elif issubclass(kind, Reschedule):
            raise InvalidArgument(
                f"the handler of {type_name!r}: give_up_on cannot contain {kind.__qualname__}: it asks for another run"
            )
    return GiveUpOn(kinds)  # pyright: ignore[reportUnknownArgumentType]
