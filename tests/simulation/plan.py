"""What happens in one run: drawn from its seed, and made smaller if the run fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Literal

Storage = Literal["memory", "sqlite", "postgres"]


@dataclass(frozen=True)
class Plan:
    seed: int
    storage: Storage = "memory"
    workers: int = 2
    actions: int = 12
    """What users do: start, cancel, retry, …"""
    kills: int = 0
    stops: int = 0
    """How often a worker is stopped as in a deploy."""
    jumps: int = 0
    """How often the clock of the database is set forward."""
    lost: float = 0.0
    hanging: float = 0.0
    unheard: float = 0.0
    limited: bool = False
    """Most jobs have a limit by key."""
    lingering: float = 0.0
    """Seconds that a user's transaction may stay open, and hold its locks."""

    @classmethod
    def of(cls, seed: int, storage: Storage = "memory") -> Plan:
        random = Random(f"plan {seed}")
        made = cls._drawn(random, seed, storage)
        # The others have one writer at a time.
        return replace(made, lingering=random.choice((0.0, 1.0, 5.0))) if storage == "postgres" else made

    @classmethod
    def _drawn(cls, random: Random, seed: int, storage: Storage) -> Plan:
        if random.random() < 0.15:  # without faults, nothing may be lost at all
            return cls(seed, storage, random.randint(1, 3), random.randint(5, 25))
        return cls(
            seed,
            storage,
            workers=random.randint(1, 3),
            actions=random.randint(5, 25),
            kills=random.choice((0, 0, 1, 2, 4)),
            stops=random.choice((0, 0, 1, 2)),
            jumps=random.choice((0, 0, 1, 3)),
            lost=random.choice((0.0, 0.01, 0.05)),
            hanging=random.choice((0.0, 0.0, 0.004)),
            unheard=random.choice((0.0, 0.2, 1.0)),
            limited=random.random() < 0.4,
        )

    def with_seed(self, seed: int) -> Plan:
        return replace(self, seed=seed)

    @property
    def calm(self) -> bool:
        """Nothing goes wrong."""
        return not (self.kills or self.stops or self.jumps or self.lost or self.hanging)

    def smaller(self) -> Iterator[Plan]:
        """Plans with less in them, the smallest first."""
        for name in ("lost", "hanging", "unheard", "kills", "stops", "jumps", "lingering"):
            if getattr(self, name):
                yield self._with(name, 0)
        for name, least in (("workers", 1), ("actions", 1), ("kills", 0), ("stops", 0), ("jumps", 0)):
            number = getattr(self, name)
            for fewer in sorted({(number + least) // 2, number - 1}):
                if least <= fewer < number:
                    yield self._with(name, fewer)

    def _with(self, name: str, value: Any) -> Plan:
        return replace(self, **{name: value})


def shrink(plan: Plan, fails: Callable[[Plan], bool], tries: int = 60) -> Plan:
    """The smallest plan found that fails as well."""
    while tries > 0:
        for each in plan.smaller():
            tries -= 1
            if fails(each):
                plan = each
                break
            if tries <= 0:
                break
        else:
            break
    return plan
