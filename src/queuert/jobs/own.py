"""The library's own job types. Every worker of this version runs them, and every client knows
them."""

from __future__ import annotations

from queuert.jobs.bulk import BULK_CLASSES
from queuert.jobs.job import JobClass, name_of

OWN_CLASSES: tuple[JobClass, ...] = tuple(BULK_CLASSES.values())

OWN_NAMES: tuple[str, ...] = tuple(map(name_of, OWN_CLASSES))
