"""The job types that a client knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from types import ModuleType
from typing import Any, Union

from queuert.base.own_types import is_own
from queuert.base.statuses import Status
from queuert.errors import DuplicateJobType, InvalidArgument, InvalidJobType, UnknownJobType
from queuert.jobs.chain import Chain, plain_json
from queuert.jobs.codecs.codec import Codec, Hooks
from queuert.jobs.declaration import Declaration, covers, read
from queuert.jobs.job import OWN_CLASSES, Job, JobClass, is_job_class, name_of
from queuert.jobs.job_type import JobType
from queuert.jobs.limits import declared_limits
from queuert.jobs.record import JobRecord
from queuert.records.archive import Archive
from queuert.records.model import BlockerRow, ChainRow, JobRow
from queuert.records.retention import Keep

JobsItem = Union[JobClass, "JobTypes", ModuleType]
"""What `jobs=[…]` takes: job classes, `JobTypes`, and modules (all job classes that they
define)."""


class JobTypes:
    """A group of job types that can be combined: `jobs=[billing.JOBS, shipping.JOBS, Greet]`.

    Args:
        items: Job classes, other `JobTypes`, or modules (all job classes that they define).
    """

    def __init__(self, items: Iterable[JobsItem]) -> None:
        if isinstance(items, str | type) or not isinstance(items, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgument(f"jobs must be a list of job classes, JobTypes or modules, got {items!r}")
        self._items: tuple[JobsItem, ...] = tuple(items)
        for item in self._items:
            if not (isinstance(item, JobTypes | ModuleType) or is_job_class(item)):
                raise InvalidArgument(f"jobs takes job classes (with a name=), JobTypes and modules, not {item!r}")

    def __iter__(self) -> Iterator[JobClass]:
        """The classes, in order. Modules are read only now, when all their classes are defined."""
        for item in self._items:
            if isinstance(item, JobTypes):
                yield from item
            elif isinstance(item, ModuleType):
                yield from _classes_in(item)
            else:
                yield item


class Registry:
    """Every job type that can be reached from `jobs` by continuation or blocker, checked and ready
    for use.

    `codecs` are asked before the built-in one, for types that msgspec does not know. `keep`: how
    long chains are kept if their class does not declare it.
    """

    def __init__(
        self,
        jobs: Iterable[JobsItem],
        *,
        codecs: Sequence[Codec] = (),
        keep: Keep | None = None,
    ) -> None:
        if keep is not None and not isinstance(keep, Keep):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgument(f"keep takes a Keep(…), got {keep!r}")
        declared = _reachable(JobTypes(jobs))
        _check_results(declared)
        if not isinstance(codecs, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgument(f"codecs takes a list of codecs, got {codecs!r}")
        for codec in codecs:
            if isinstance(codec, type) or not isinstance(codec, Codec):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InvalidArgument(f"codecs takes objects with supports, encode and decode, not {codec!r}")
        self._hooks = Hooks(codecs, self.bare_chain)
        current = self._types(declared)
        self._by_class = {job_type.cls: job_type for job_type in current}
        self._output_decoders: dict[str, Callable[[bytes], Any]] = {}
        self._by_name: dict[str, JobType] = {}
        for job_type in current:
            for name in job_type.names:
                known = self._by_name.setdefault(name, job_type.stored_as(name))
                if known.cls is not job_type.cls:
                    raise DuplicateJobType(name, known.cls, job_type.cls)
        self._keep = {
            name: job_type.cls.__queuert_keep__ or keep or Keep()
            for name, job_type in self._by_name.items()
            if job_type.is_entry
        }
        self._discarded = frozenset(name for name, each in self._keep.items() if each.discards)
        for job_type in current:
            self._check_blockers(job_type)
        declared_limits(current)  # one name has one meaning

    def keep_of(self, type_name: str) -> Keep | None:
        """How long chains of this type are kept. None: no chain can start with it."""
        return self._keep.get(type_name)

    @property
    def archives(self) -> dict[str, Archive]:
        """The types whose chains are archived before they are deleted, and how."""
        return {name: keep.archive for name, keep in self._keep.items() if keep.archive is not None}

    def discards(self, type_name: str) -> bool:
        """Whether chains of this type are deleted when they are completed."""
        return type_name in self._discarded

    def _check_blockers(self, job_type: JobType) -> None:
        """A chain that is deleted when it is completed has no output for others."""
        for field, (_, names) in job_type.blocker_fields.items():
            for name in names:
                if name in self._discarded:
                    raise InvalidJobType(
                        job_type.name,
                        f"field {field!r}: chains of {name!r} are deleted when they are completed, because of "
                        "Keep(completed=0), so no job can wait for them: keep them for longer",
                    )

    def _types(self, declared: dict[str, Declaration]) -> list[JobType]:
        return [JobType(declaration, self._hooks, self.chain_from_blocker) for declaration in declared.values()]

    @cached_property
    def _own(self) -> dict[str, JobType]:
        """The library's own types: made when they are needed, and not among the others."""
        return {job_type.name: job_type for job_type in self._types(_reachable(OWN_CLASSES))}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._by_name)

    def __iter__(self) -> Iterator[JobType]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def by_name(self, name: str) -> JobType | None:
        found = self._by_name.get(name)
        return self._own.get(name) if found is None and is_own(name) else found

    def names_of(self, name: str) -> tuple[str, ...]:
        """All names that jobs of this type are stored with."""
        known = self._by_name.get(name)
        return (name,) if known is None else known.names

    def require(self, wanted: str | JobClass) -> JobType:
        """The type of that name or class, or `UnknownJobType`."""
        if isinstance(wanted, str):
            found = self.by_name(wanted)
        elif is_job_class(wanted):
            found = self._by_class.get(wanted) or self._own_class(wanted)
        else:
            raise InvalidArgument(f"a job class or the name of one is expected, not {wanted!r}")
        if found is None:
            raise UnknownJobType(wanted if isinstance(wanted, str) else name_of(wanted))
        return found

    def of(self, job: Job[Any, Any]) -> JobType:
        """The type of a job, or `UnknownJobType`."""
        found = self._by_class.get(type(job)) or self._own_class(type(job))
        if found is None:
            if not is_job_class(type(job)):
                raise InvalidArgument(f"a job is expected, not {job!r}")
            raise UnknownJobType(name_of(type(job)))
        return found

    def _own_class(self, cls: type) -> JobType | None:
        return self._own[name_of(cls)] if cls in OWN_CLASSES else None

    def new_chain(self, chain_id: str, type_name: str, status: Status, input: bytes | None = None) -> Chain[Any]:
        """A chain that has just been started."""
        return Chain(
            chain_id,
            type_name,
            status,
            current_job_id=chain_id,
            current_job_type=type_name,
            input=input,
            decode=self._output_decoder(type_name),
        )

    def pruned_chain(self, chain_id: str, type_name: str, status: Status) -> Chain[Any]:
        """A chain that is gone, but whose key still matches."""
        return Chain(chain_id, type_name, status, deduplicated=True, decode=self._output_decoder(type_name))

    def bare_chain(self, chain_id: str, type_name: str) -> Chain[Any]:
        """A chain of which nothing is known but its id and type."""
        return Chain(chain_id, type_name, decode=self._output_decoder(type_name))

    def chain_from_row(self, row: ChainRow, *, deduplicated: bool = False, replaced: bool = False) -> Chain[Any]:
        """A stored chain. Of an unregistered type, its output is plain JSON."""
        first, current = row.first, row.current
        return Chain(
            first.id,
            first.type_name,
            current.status,
            deduplicated=deduplicated,
            replaced=replaced,
            created_at=first.created_at,
            completed_at=current.completed_at,
            current_job_id=current.id,
            current_job_type=current.type_name,
            input=first.input,
            output=current.output,
            last_error=current.last_error,
            decode=self._output_decoder(first.type_name),
        )

    def chain_from_blocker(self, row: BlockerRow) -> Chain[Any]:
        """What is known of a chain that a job waits for."""
        decode = self._output_decoder(row.chain_type)
        return Chain(row.chain_id, row.chain_type, row.status, output=row.output, decode=decode)

    def record(self, row: JobRow) -> JobRecord[Any]:
        """A stored job, of whatever type."""
        return JobRecord(row, self.by_name(row.type_name))

    def _output_decoder(self, type_name: str) -> Callable[[bytes], Any]:
        found = self._output_decoders.get(type_name)
        if found is None:
            job_type = self.by_name(type_name)
            if job_type is None:
                return plain_json
            found = self._output_decoders[type_name] = job_type.decode_output
        return found


def _classes_in(module: ModuleType) -> Iterator[JobClass]:
    for value in vars(module).values():
        # What a module imports belongs to the module that defines it.
        if is_job_class(value) and value.__module__ == module.__name__:
            yield value


def _reachable(classes: Iterable[JobClass]) -> dict[str, Declaration]:
    found: dict[str, Declaration] = {}
    waiting = list(classes)[::-1]
    while waiting:
        cls = waiting.pop()
        name = name_of(cls)
        known = found.get(name)
        if known is None:
            declaration = found[name] = read(cls)
            waiting.extend(cls for blocker in declaration.blockers.values() for cls in blocker.classes)
            waiting.extend(declaration.continuations)
        elif known.cls is not cls:
            raise DuplicateJobType(name, known.cls, cls)
    return found


def _check_results(declared: dict[str, Declaration]) -> None:
    """A chain resolves to what its first job declares. Each job that it may continue with must
    declare the same.
    """
    for declaration in declared.values():
        for cls in declaration.continuations:
            following = declared[name_of(cls)]
            if not covers(declaration.returns, following.returns):
                raise InvalidJobType(
                    declaration.name,
                    f"it resolves to {declaration.returns}, but continues with {following.name!r}, which resolves "
                    f"to {following.returns}",
                )
