"""A stored job as users read it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, cast

from queuert.base.statuses import Status
from queuert.errors import UnknownJobType
from queuert.jobs.chain import J_co, R, error_record, plain_json
from queuert.jobs.job import Job
from queuert.records.model import JobRow

if TYPE_CHECKING:
    from queuert.jobs.job_type import JobType

_COPIED = (
    "id",
    "chain_id",
    "chain_type",
    "chain_index",
    "status",
    "priority",
    "created_at",
    "scheduled_at",
    "completed_at",
    "completed_by",
    "continued_to",
    "last_attempt_at",
    "leased_by",
    "leased_until",
    "deadline",
    "dedup_key",
    "losses",
)


class JobRecord(Generic[J_co]):
    """A job as it is stored, with its input and output.

    It shows one moment and does not change by itself.

    A job whose type this client does not know can be read, too: only `job` needs the class.
    """

    __slots__ = (*_COPIED, "_row", "_type", "attempt_number", "job_type")

    id: str
    """The id of the job."""
    job_type: str
    """The name of the job's type."""
    chain_id: str
    """The id of the chain that the job belongs to."""
    chain_type: str
    """The name of the chain's type: the job type that it started with."""
    chain_index: int
    """The position of the job in its chain, counted from 0."""
    status: Status
    """The status of the job."""
    priority: int
    """How urgent the job is: the lowest number runs first (default: 100)."""
    created_at: datetime
    """When the job was created."""
    scheduled_at: datetime
    """When the job may run, or when it became due."""
    completed_at: datetime | None
    """When the job ended, whatever its status is. None if it has not ended."""
    completed_by: str | None
    """The id of the worker that completed it. None if it was completed without a worker."""
    continued_to: str | None
    """The id of the next job in the chain, if the job continued with one."""
    attempt_number: int
    """The number of the latest attempt, counted from 1. It is 0 before the first attempt."""
    last_attempt_at: datetime | None
    """When the latest attempt was claimed."""
    leased_by: str | None
    """The id of the worker that runs the job now."""
    leased_until: datetime | None
    """When that worker's lease ends, unless it is renewed."""
    deadline: datetime | None
    """The job expires if its handler has not begun by then."""
    dedup_key: str | None
    """The deduplication key that the chain was started with."""
    losses: int
    """How many of its attempts were lost with their worker."""

    def __init__(self, row: JobRow, job_type: JobType | None) -> None:
        for name in _COPIED:
            setattr(self, name, getattr(row, name))
        self.job_type = row.type_name
        self.attempt_number = row.attempt
        self._row = row
        self._type = job_type

    @property
    def input(self) -> Any:
        """The input as plain JSON: dictionaries, lists, strings, numbers."""
        return plain_json(self._row.input)

    @property
    def output(self: JobRecord[Job[R, Any]]) -> R | None:
        """The output that the job ended its chain with.

        None if it has not ended, or continued with another job.

        It has the type that the job class declares. It is plain JSON if the class is not
        registered.
        """
        data = self._row.output
        if data is None:
            return None
        value: R = plain_json(data) if self._type is None else self._type.decode_output(data)
        return value

    @property
    def last_error(self) -> Mapping[str, Any] | None:
        """The error of the last failed attempt: `code`, `type`, `message`, `traceback`, and
        `attributes` if the exception had some that are JSON.

        None if there is none, and for a completed job: success clears it.
        """
        # Older versions kept it.
        return None if self._row.status == "completed" else error_record(self._row.last_error)

    @property
    def job(self) -> J_co:
        """The job itself.

        Its blocker fields know only the ids of their chains: see `client.get_blockers`.

        Raises `UnknownJobType` if the class is not registered, and `JobTypeValidationError` if the
        stored input no longer fits the class.
        """
        if self._type is None:
            raise UnknownJobType(self.job_type)
        return cast(J_co, self._type.decode_input(self._row.input))

    def __eq__(self, other: object) -> bool:
        return self._row == other._row if isinstance(other, JobRecord) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<JobRecord {self.job_type} {self.id}: {self.status}, attempt {self.attempt_number}>"
