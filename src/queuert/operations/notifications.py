"""Notifications wait for the commit, and are sent once per type, chain and job."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Protocol

from queuert.transaction import Step


class Publisher(Protocol):
    """The publishing half of the notify port, sync or async."""

    def provide_wake_hints(self, counts: Mapping[str, int], /) -> Awaitable[None] | None: ...

    def job_scheduled(self, types: Sequence[str], /) -> Awaitable[None] | None: ...

    def chain_completed(self, chain_ids: Sequence[str], /) -> Awaitable[None] | None: ...

    def ownership_lost(self, job_ids: Sequence[str], /) -> Awaitable[None] | None: ...


class Notifications:
    """A hook (see `queuert.transaction`) that collects what is to be published."""

    # After observers: whoever is woken finds the event recorded.
    order = 1

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._scheduled: list[str] = []
        self._completed: list[str] = []
        self._lost: list[str] = []

    def job_scheduled(self, type_name: str) -> None:
        self._scheduled.append(type_name)

    def chain_completed(self, chain_id: str) -> None:
        self._completed.append(chain_id)

    def ownership_lost(self, job_id: str) -> None:
        self._lost.append(job_id)

    def checkpoint(self) -> Callable[[], None]:
        buffers = (self._scheduled, self._completed, self._lost)
        lengths = [len(buffer) for buffer in buffers]

        def restore() -> None:
            for buffer, length in zip(buffers, lengths, strict=True):
                del buffer[length:]

        return restore

    def steps(self) -> Iterator[Step]:
        publisher = self._publisher
        if self._lost:
            lost = list(dict.fromkeys(self._lost))
            yield lambda: publisher.ownership_lost(lost)
        if self._completed:
            completed = list(dict.fromkeys(self._completed))
            yield lambda: publisher.chain_completed(completed)
        if self._scheduled:
            counts: dict[str, int] = {}
            for type_name in self._scheduled:
                counts[type_name] = counts.get(type_name, 0) + 1
            # The budget first: a worker that wakes before it is there would find it used up and sleep on.
            yield lambda: publisher.provide_wake_hints(counts)
            yield lambda: publisher.job_scheduled(list(counts))
