"""The jobs of the simulation. What a job does is written in its input, so that a run can be replayed."""

from __future__ import annotations

from typing import Literal

from tests.simulation.limited import LIMITED

from queuert import Chain, EntryJob, Job, Queue

Kind = Literal["plain", "atomic", "staged", "long"]
KINDS: tuple[Kind, ...] = ("plain", "atomic", "staged", "long")

CAP = 2
NARROW = Queue("narrow", max_concurrency=CAP)
"""A queue of which only so many jobs may run at once, in all processes."""


class Work(EntryJob[int, "Last"], name="work"):
    """Fails so many times, then has an effect, then ends or goes on."""

    kind: Kind = "plain"
    failures: int = 0
    goes_on: bool = False


class Last(Job[int], name="last"):
    number: int


class Capped(EntryJob[int], name="capped", queue="narrow"):
    number: int


class InThread(EntryJob[int], name="in_thread"):
    """Its handler is a plain `def`."""

    failures: int = 0


class Join(EntryJob[int], name="join"):
    """Waits for other chains."""

    parts: list[Chain[Work]]


class Effect(EntryJob[None], name="effect"):
    """What a handler writes in `complete()`: a chain that no worker runs, so that it can be counted."""

    origin: str


ALL = [Work, Last, Capped, InThread, Join, Effect, *LIMITED]
