"""What every operation needs: the job types, the storage, the channel, and how ids are made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from queuert.base.ids import GenerateId, ValidateId, generate_uuid7, validate_uuid
from queuert.engine.events.observations import Observations
from queuert.engine.events.observers import Observers
from queuert.engine.notifications import Notifications, Publisher
from queuert.engine.transaction import Hooks
from queuert.errors import InvalidJobId
from queuert.jobs.registry import Registry
from queuert.ports.state import StateOperations
from queuert.ports.tracer import Tracer
from queuert.records.model import Created, NewJob

IDS_AT_ONCE = 64
"""Few enough that their time is that of the jobs."""

OnStart = Callable[[Hooks, Sequence[NewJob], Sequence[Created]], None]


@dataclass(frozen=True)
class Engine:
    jobs: Registry
    state: StateOperations
    notify: Publisher
    generate_id: GenerateId = field(default=generate_uuid7)
    validate_id: ValidateId = field(default=validate_uuid)
    observers: Observers | None = None
    on_start: list[OnStart] = field(default_factory=list[OnStart], compare=False)
    """Told of each start before its commit. For tests: see `queuert.testing`."""

    @property
    def _checks_new_ids(self) -> bool:
        """Our own ids pass our own check."""
        return self.generate_id is not generate_uuid7 or self.validate_id is not validate_uuid

    def new_id(self) -> str:
        """The id of a new job. Call it for nothing else: `generate_id` may count."""
        job_id = self.generate_id()
        if self._checks_new_ids:
            if not isinstance(job_id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InvalidJobId(job_id, f"generate_id must return a string, not {type(job_id).__name__}")
            self.check_id(job_id)
        return job_id

    def new_ids(self) -> Iterator[str]:
        """For many jobs: as many as are asked for."""
        while True:
            if self._checks_new_ids:
                yield self.new_id()
            else:
                yield from generate_uuid7.several(IDS_AT_ONCE)

    def check_id(self, job_id: str) -> None:
        """Raise `InvalidJobId` if a new job cannot have this id."""
        if self.validate_id(job_id) is False:
            raise InvalidJobId(job_id, "validate_id does not accept it")
        if not self.state.stores_id(job_id):
            raise InvalidJobId(job_id, "this database stores only UUIDs in lower case")

    @property
    def tracer(self) -> Tracer | None:
        return None if self.observers is None else self.observers.tracer

    def notifications(self, hooks: Hooks) -> Notifications:
        """The notifications that wait for the commit that `hooks` belong to."""
        return hooks.use("notifications", lambda: Notifications(self.notify, hooks.announce))

    def observations(self, hooks: Hooks) -> Observations:
        """What observers are told after that commit.

        Only for clients with observers, so that others have no cost.
        """
        observers = self.observers
        assert observers is not None
        return hooks.use("observations", lambda: Observations(observers, self.state))
