"""A stored job as users read it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, cast

from queuert.errors import UnknownJobType
from queuert.jobs.chain import J_co, R, error_record, plain_json
from queuert.jobs.job import Job
from queuert.model import JobRow, Status

if TYPE_CHECKING:
    from queuert.jobs.job_type import JobType

_COPIED = (
    "id",
    "type_name",
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
    "attempt",
    "last_attempt_at",
    "leased_by",
    "leased_until",
    "deadline",
    "dedup_key",
)


class JobRecord(Generic[J_co]):
    """A job as it is stored, with its input and output. It shows one moment and does not change by itself.

    A job whose type this client does not know can be read too: only `job` needs the class.
    """

    __slots__ = (*_COPIED, "_job_type", "_row")

    id: str
    type_name: str
    chain_id: str
    chain_type: str
    """The name of the job type that the chain started with."""
    chain_index: int
    """The place of the job in its chain, from 0."""
    status: Status
    priority: int
    created_at: datetime
    scheduled_at: datetime
    completed_at: datetime | None
    completed_by: str | None
    """The worker that completed it; None if it was completed without one."""
    continued_to: str | None
    """The id of the next job in the chain."""
    attempt: int
    last_attempt_at: datetime | None
    leased_by: str | None
    leased_until: datetime | None
    deadline: datetime | None
    dedup_key: str | None

    def __init__(self, row: JobRow, job_type: JobType | None) -> None:
        for name in _COPIED:
            setattr(self, name, getattr(row, name))
        self._row = row
        self._job_type = job_type

    @property
    def input(self) -> Any:
        """The input as plain JSON, whatever its type."""
        return plain_json(self._row.input)

    @property
    def output(self: JobRecord[Job[R, Any]]) -> R | None:
        """What the job ended its chain with; None if it has not, or has continued with another job.

        Of the type that the job class says, or plain JSON if the class is not registered.
        """
        data = self._row.output
        if data is None:
            return None
        value: R = plain_json(data) if self._job_type is None else self._job_type.decode_output(data)
        return value

    @property
    def error(self) -> Mapping[str, Any] | None:
        """What went wrong in the last failed attempt, if any did."""
        return error_record(self._row.last_error)

    @property
    def job(self) -> J_co:
        """The job itself. `UnknownJobType` if its class is not registered, `JobTypeValidationError` if the stored
        input does not fit the class any more. Of its blockers only the ids are known: see `client.get_blockers`.
        """
        if self._job_type is None:
            raise UnknownJobType(self.type_name)
        return cast(J_co, self._job_type.decode_input(self._row.input))

    def __eq__(self, other: object) -> bool:
        return self._row == other._row if isinstance(other, JobRecord) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<JobRecord {self.type_name} {self.id}: {self.status}, attempt {self.attempt}>"
