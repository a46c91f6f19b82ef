"""Which chains were started while a block ran."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar, overload

from msgspec.structs import replace

from queuert.base.contexts import context
from queuert.client.base import BaseClient
from queuert.engine.transaction import Hooks
from queuert.jobs.chain import Chain
from queuert.jobs.deduplication import rule_of
from queuert.jobs.job import EntryJob, Job, options_of
from queuert.jobs.options import JobOptions
from queuert.jobs.registry import Registry
from queuert.records.model import Created, NewJob

J = TypeVar("J", bound=Job[Any, Any])
E = TypeVar("E", bound=EntryJob[Any, Any])


class _Start(NamedTuple):
    job: Job[Any, Any]
    chain: Chain[Any]
    new: NewJob


class Started:
    """The chains that were started in a block of `started`, in their order.

    What was rolled back is not among them. What is not committed yet is. Iterate over it, or use
    its methods, which raise `AssertionError` if something else was started.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._starts: list[_Start] = []
        self._deduplicated: list[Chain[Any]] = []

    @property
    def jobs(self) -> list[Job[Any, Any]]:
        """The first jobs of the chains."""
        return [start.job for start in self._starts]

    @property
    def chains(self) -> list[Chain[Any]]:
        """The chains."""
        return [start.chain for start in self._starts]

    @property
    def deduplicated(self) -> list[Chain[Any]]:
        """The chains that `start` found under a deduplication key. They are not in `jobs`."""
        return list(self._deduplicated)

    def of(self, job_type: type[J]) -> list[J]:
        """The jobs of one type.

        Args:
            job_type: The job class.
        """
        return [start.job for start in self._starts if isinstance(start.job, job_type)]

    @overload
    def only(self, job: E, /) -> Chain[E]: ...
    @overload
    def only(
        self, first: EntryJob[Any, Any], second: EntryJob[Any, Any], /, *more: EntryJob[Any, Any]
    ) -> list[Chain[Any]]: ...
    def only(self, *jobs: Any) -> Any:
        """Check that exactly these jobs were started, in any order.

        Returns their chains: one chain for one job, a list for several. Options that a job has from
        `job.set(…)` must be the same, too. Others are not compared.

        Args:
            jobs: The jobs.
        """
        found, missing, left = self._match(jobs)
        if missing or left:
            raise AssertionError(_difference(found, missing, left))
        chains = [start.chain for start in found]
        return chains[0] if len(chains) == 1 else chains

    def includes(self, job: E) -> Chain[E]:
        """Check that this job was started, and perhaps others. Returns its chain.

        Args:
            job: The job, compared as by `only`.
        """
        found, missing, left = self._match([job])
        if missing:
            raise AssertionError(_difference((), missing, left))
        return found[0].chain

    def nothing(self) -> None:
        """Check that nothing was started."""
        if self._starts:
            raise AssertionError(_difference((), (), self._starts))

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[Job[Any, Any]]:
        return iter(self.jobs)

    def __repr__(self) -> str:
        return f"<Started {self.jobs!r}>"

    def _match(self, wanted: Sequence[Job[Any, Any]]) -> tuple[list[_Start], list[Job[Any, Any]], list[_Start]]:
        """The starts of the wanted jobs, the jobs that are missing, and the other starts."""
        left, found, missing = list(self._starts), list[_Start](), list[Job[Any, Any]]()
        for job in wanted:
            start = next((start for start in left if start.job == job and not _other_options(start, job)), None)
            if start is None:
                missing.append(job)
            else:
                left.remove(start)
                found.append(start)
        return found, missing, left

    def _add(self, hooks: Hooks, new_jobs: Sequence[NewJob], created: Sequence[Created]) -> None:
        starts: list[_Start] = []
        for new, made in zip(new_jobs, created, strict=True):
            if made.existing is not None:
                chain = self._registry.chain_from_row(made.existing, deduplicated=True, replaced=made.replaced)
                self._deduplicated.append(chain)
                continue
            if made.pruned:
                self._deduplicated.append(self._registry.pruned_chain(made.chain_id, new.chain_type, made.status))
                continue
            job = self._registry.require(new.type_name).decode_input(new.input)
            chain = self._registry.new_chain(made.chain_id, new.chain_type, made.status, new.input)
            starts.append(_Start(job, chain, new))
        if starts:
            self._starts += starts
            hooks.after_rollback(partial(self._forget, starts))

    def _forget(self, starts: Sequence[_Start]) -> None:
        undone = {start.chain.id for start in starts}
        self._starts = [start for start in self._starts if start.chain.id not in undone]


@context
def started(client: BaseClient[Any]) -> Iterator[Started]:
    """Record the chains that are started with a client while the block runs.

        with testing.started(client) as started:
            await checkout(order)
        started.only(ReserveStock(order_id=7))

    Chains that handlers start with `attempt.client` count. The next job of a chain does not.

    Args:
        client: The client that your code uses.
    """
    engine = client.sessions.engine
    found = Started(engine.jobs)
    tell = found._add  # pyright: ignore[reportPrivateUsage]
    engine.on_start.append(tell)
    try:
        yield found
    finally:
        engine.on_start.remove(tell)


def _other_options(start: _Start, job: Job[Any, Any]) -> list[str]:
    """The names of the options that the job has, and that it was not started with."""
    wanted, new = options_of(job), start.new
    if wanted.dedup is not None:
        wanted = replace(wanted, dedup=rule_of(wanted.dedup)[0])
    given = JobOptions(new.schedule, new.priority, new.id, new.deadline, new.dedup)
    return [
        field
        for field in JobOptions.__struct_fields__
        if (value := getattr(wanted, field)) is not None and value != getattr(given, field)
    ]


def _difference(found: Sequence[_Start], missing: Sequence[Job[Any, Any]], left: Sequence[_Start]) -> str:
    lines = ["what was started is not what was expected"]
    lines += [f"  not started: {job!r}{_shown(options_of(job))}" for job in missing]
    lines += [f"  started, but not expected: {start.job!r}" for start in left]
    lines += [f"  as expected: {start.job!r}" for start in found]
    if len(missing) == 1:
        lines += [f"  {line}" for start in left for line in _fields(missing[0], start)]
    if not (found or left):
        lines.append("  (nothing was started)")
    return "\n".join(lines)


def _fields(job: Job[Any, Any], start: _Start) -> list[str]:
    """What differs between two jobs of one type."""
    if type(job) is not type(start.job):
        return []
    names = [field.name for field in dataclasses.fields(job)]  # type: ignore[arg-type]
    other = [name for name in names if getattr(job, name) != getattr(start.job, name)]
    lines = [f"{name}: expected {getattr(job, name)!r}, got {getattr(start.job, name)!r}" for name in other]
    for name in _other_options(start, job):
        got = getattr(start.new, name)
        lines.append(f"option {name}: expected {getattr(options_of(job), name)!r}, got {got!r}")
    return lines


def _shown(options: JobOptions) -> str:
    values = {name: value for name in JobOptions.__struct_fields__ if (value := getattr(options, name)) is not None}
    return f" with {', '.join(f'{name}={value!r}' for name, value in values.items())}" if values else ""
