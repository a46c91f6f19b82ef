"""What every operation needs: the job types, the storage, the channel, and how ids are made."""

from __future__ import annotations

from dataclasses import dataclass, field

from queuert.ids import GenerateId, ValidateId, generate_uuid7, validate_uuid
from queuert.jobs.registry import Registry
from queuert.operations.notifications import Notifications, Publisher
from queuert.operations.observations import Observations
from queuert.operations.observers import Observers
from queuert.ports.state import StateOperations
from queuert.ports.tracer import Tracer
from queuert.transaction import Hooks


@dataclass(frozen=True)
class Engine:
    jobs: Registry
    state: StateOperations
    notify: Publisher
    generate_id: GenerateId = field(default=generate_uuid7)
    validate_id: ValidateId = field(default=validate_uuid)
    observers: Observers | None = None

    @property
    def tracer(self) -> Tracer | None:
        return None if self.observers is None else self.observers.tracer

    def notifications(self, hooks: Hooks) -> Notifications:
        """The notifications that wait for the commit that `hooks` belong to."""
        return hooks.use("notifications", lambda: Notifications(self.notify))

    def observations(self, hooks: Hooks) -> Observations:
        """What observers are told after that commit.

        Only for clients with observers, so that others have no cost.
        """
        observers = self.observers
        assert observers is not None
        return hooks.use("observations", lambda: Observations(observers, self.state))
