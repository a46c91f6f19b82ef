"""A chain as users see it: its id, what is known of its state, and its typed output."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Generic

import msgspec
from typing_extensions import TypeVar

from queuert.base.statuses import Status
from queuert.errors import ChainNotCompleted
from queuert.jobs.job import Job
from queuert.records.schedules import read_chain_id

R = TypeVar("R")
J_co = TypeVar("J_co", bound=Job[Any, Any], covariant=True)

_UNREAD: Any = object()


def plain_json(data: bytes) -> Any:
    """A stored value without its type: plain dictionaries, lists, strings and numbers."""
    return msgspec.json.decode(data)


def error_record(data: bytes | None) -> Mapping[str, Any] | None:
    return None if data is None else plain_json(data)


class Chain(Generic[J_co]):
    """A chain of jobs, known by the id of its first job.

    `client.start` and `client.get_chain` return chains, and the blocker fields of a job hold them.
    A chain shows what was known when it was read. It does not change by itself:
    `client.get_chain(chain)` reads it again. Two chains are equal if they have the same id.
    """

    __slots__ = (
        "_decode",
        "_input",
        "_last_error",
        "_output",
        "_value",
        "chain_type",
        "completed_at",
        "created_at",
        "current_job_id",
        "current_job_type",
        "deduplicated",
        "id",
        "replaced",
        "status",
    )

    id: str
    """The id of the chain. It is also the id of its first job."""
    chain_type: str
    """The name of the chain's type: the job type that it started with."""
    status: Status | None
    """The status of the chain's current job.

    None if only the id is known: in the blocker fields of a stored job.
    """
    deduplicated: bool
    """True if `start` found this chain under the deduplication key and started no new one."""
    replaced: bool
    """True if `start` found this chain and gave it the new input (`Debounce`, `Throttle`)."""
    created_at: datetime | None
    """When the chain was started, or None if that is not known."""
    completed_at: datetime | None
    """When the chain ended, or None if it has not ended or if that is not known."""
    current_job_id: str | None
    """The id of the job that the chain has reached, or None if that is not known."""
    current_job_type: str | None
    """The name of that job's type, or None if that is not known."""

    def __init__(
        self,
        id: str,
        chain_type: str,
        status: Status | None = None,
        *,
        deduplicated: bool = False,
        replaced: bool = False,
        created_at: datetime | None = None,
        completed_at: datetime | None = None,
        current_job_id: str | None = None,
        current_job_type: str | None = None,
        input: bytes | None = None,
        output: bytes | None = None,
        last_error: bytes | None = None,
        decode: Callable[[bytes], Any] = plain_json,
    ) -> None:
        self.id = id
        self.chain_type = chain_type
        self.status = status
        self.deduplicated = deduplicated
        self.replaced = replaced
        self.created_at = created_at
        self.completed_at = completed_at
        self.current_job_id = current_job_id
        self.current_job_type = current_job_type
        self._input = input
        self._output = output
        self._last_error = last_error
        self._decode = decode
        self._value: Any = _UNREAD

    @property
    def input(self) -> Any:
        """The input that the chain was started with, as plain JSON: dictionaries, lists, strings,
        numbers. `client.get_job(chain.id, …)` has it as a job.

        None if it is not known: in the blocker fields of a job, and in what `get_blockers` returns.
        """
        return None if self._input is None else plain_json(self._input)

    @property
    def tick(self) -> datetime | None:
        """The tick of the schedule that started the chain, in UTC, or the moment when the schedule
        was triggered. None if no schedule started it. `client.schedule_of(chain)` reads the
        schedule.
        """
        known = read_chain_id(self.id)
        return None if known is None else known.at

    @property
    def output(self: Chain[Job[R, Any]]) -> R:
        """What the chain resolved to.

        Raises `ChainNotCompleted` unless the status is "completed".
        """
        if self._value is _UNREAD:
            if self.status != "completed":
                raise ChainNotCompleted(self.id, self.status or "unknown")
            # Most outputs are never read, so they are decoded on first use.
            self._value = self._decode(self._output or b"null")
        value: R = self._value
        return value

    @property
    def last_error(self) -> Mapping[str, Any] | None:
        """The error of the current job's last failed attempt: `code`, `type`, `message`,
        `traceback`, and `attributes` if the exception had some that are JSON. None if there is
        none, and for a completed chain: success clears it.
        """
        # Older versions kept it.
        return None if self.status == "completed" else error_record(self._last_error)

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, Chain) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        more = ", deduplicated" if self.deduplicated else ""
        return f"<Chain {self.chain_type} {self.id}: {self.status or 'status unknown'}{more}>"
