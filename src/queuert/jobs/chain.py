"""A chain as users hold it: an id, what is known of its state, and its typed output."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Generic

import msgspec
from typing_extensions import TypeVar

from queuert.errors import ChainNotCompleted
from queuert.jobs.job import Job
from queuert.model import Status

R = TypeVar("R")
J_co = TypeVar("J_co", bound=Job[Any, Any], covariant=True)

_UNREAD: Any = object()


def plain_json(data: bytes) -> Any:
    """A stored value without its type: plain dictionaries, lists, strings and numbers."""
    return msgspec.json.decode(data)


def error_record(data: bytes | None) -> Mapping[str, Any] | None:
    return None if data is None else plain_json(data)


class Chain(Generic[J_co]):
    """A chain of jobs, known by the id of its first one.

    `client.start` and `client.get_chain` return one, and a job's blocker fields hold them. It shows what was known
    when it was made and does not change by itself. Two of them are equal if they are the same chain.

    `status` is None only if nothing is known but the id: in a blocker field of a job that is read, not run.
    """

    __slots__ = (
        "_decode",
        "_error",
        "_output",
        "_value",
        "completed_at",
        "created_at",
        "current_job_id",
        "current_type_name",
        "deduplicated",
        "id",
        "status",
        "type_name",
    )

    id: str
    """The id of the chain, which is that of its first job."""
    type_name: str
    """The name of the job type that the chain started with."""
    status: Status | None
    deduplicated: bool
    """Whether `start` found this chain under the deduplication key, instead of starting a new one."""
    created_at: datetime | None
    completed_at: datetime | None
    current_job_id: str | None
    """The job that the chain has come to, if that is known."""
    current_type_name: str | None

    def __init__(
        self,
        id: str,
        type_name: str,
        status: Status | None = None,
        *,
        deduplicated: bool = False,
        created_at: datetime | None = None,
        completed_at: datetime | None = None,
        current_job_id: str | None = None,
        current_type_name: str | None = None,
        output: bytes | None = None,
        error: bytes | None = None,
        decode: Callable[[bytes], Any] = plain_json,
    ) -> None:
        self.id = id
        self.type_name = type_name
        self.status = status
        self.deduplicated = deduplicated
        self.created_at = created_at
        self.completed_at = completed_at
        self.current_job_id = current_job_id
        self.current_type_name = current_type_name
        self._output = output
        self._error = error
        self._decode = decode
        self._value: Any = _UNREAD

    @property
    def output(self: Chain[Job[R, Any]]) -> R:
        """What the chain resolved to; `ChainNotCompleted` unless its status is "completed"."""
        if self._value is _UNREAD:
            if self.status != "completed":
                raise ChainNotCompleted(self.id, self.status or "unknown")
            # Most outputs are never read: they are decoded when somebody asks, and once.
            self._value = self._decode(self._output or b"null")
        value: R = self._value
        return value

    @property
    def error(self) -> Mapping[str, Any] | None:
        """What went wrong in the last failed attempt of the current job, if any did."""
        return error_record(self._error)

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, Chain) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        more = ", deduplicated" if self.deduplicated else ""
        return f"<Chain {self.type_name} {self.id}: {self.status or 'status unknown'}{more}>"
