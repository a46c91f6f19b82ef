"""The job types that a client knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import ModuleType
from typing import Any, Union

from queuert.errors import DuplicateJobType, InvalidArgument, InvalidJobType, UnknownJobType
from queuert.jobs.chain import Chain, plain_json
from queuert.jobs.codec import Codec, Hooks
from queuert.jobs.declaration import Declaration, covers, read
from queuert.jobs.job import Job, JobClass, is_job_class, name_of
from queuert.jobs.job_type import JobType
from queuert.jobs.record import JobRecord
from queuert.model import BlockerRow, ChainRow, JobRow, Status

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

    `codecs` are asked before the built-in one, for types that msgspec does not know.
    """

    def __init__(self, jobs: Iterable[JobsItem], *, codecs: Sequence[Codec] = ()) -> None:
        declared = _reachable(JobTypes(jobs))
        _check_results(declared)
        for codec in codecs:
            if isinstance(codec, type) or not isinstance(codec, Codec):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InvalidArgument(f"codecs takes objects with supports, encode and decode, not {codec!r}")
        hooks = Hooks(codecs, self.bare_chain)
        self._by_name = {
            name: JobType(declaration, hooks, self.chain_from_blocker) for name, declaration in declared.items()
        }
        self._by_class = {job_type.cls: job_type for job_type in self._by_name.values()}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._by_name)

    def __iter__(self) -> Iterator[JobType]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def by_name(self, name: str) -> JobType | None:
        return self._by_name.get(name)

    def require(self, wanted: str | JobClass) -> JobType:
        """The type of that name or class, or `UnknownJobType`."""
        if isinstance(wanted, str):
            found = self._by_name.get(wanted)
        elif is_job_class(wanted):
            found = self._by_class.get(wanted)
        else:
            raise InvalidArgument(f"a job class or the name of one is expected, not {wanted!r}")
        if found is None:
            raise UnknownJobType(wanted if isinstance(wanted, str) else name_of(wanted))
        return found

    def of(self, job: Job[Any, Any]) -> JobType:
        """The type of a job, or `UnknownJobType`."""
        found = self._by_class.get(type(job))
        if found is None:
            if not is_job_class(type(job)):
                raise InvalidArgument(f"a job is expected, not {job!r}")
            raise UnknownJobType(name_of(type(job)))
        return found

    def new_chain(self, chain_id: str, type_name: str, status: Status) -> Chain[Any]:
        """A chain that has just been started."""
        return Chain(
            chain_id,
            type_name,
            status,
            current_job_id=chain_id,
            current_job_type=type_name,
            decode=self._output_decoder(type_name),
        )

    def bare_chain(self, chain_id: str, type_name: str) -> Chain[Any]:
        """A chain of which nothing is known but its id and type."""
        return Chain(chain_id, type_name, decode=self._output_decoder(type_name))

    def chain_from_row(self, row: ChainRow, deduplicated: bool = False) -> Chain[Any]:
        """A stored chain. Of an unregistered type, its output is plain JSON."""
        first, current = row.first, row.current
        return Chain(
            first.id,
            first.type_name,
            current.status,
            deduplicated=deduplicated,
            created_at=first.created_at,
            completed_at=current.completed_at,
            current_job_id=current.id,
            current_job_type=current.type_name,
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
        return JobRecord(row, self._by_name.get(row.type_name))

    def _output_decoder(self, type_name: str) -> Callable[[bytes], Any]:
        job_type = self._by_name.get(type_name)
        return plain_json if job_type is None else job_type.decode_output


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
            waiting.extend(blocker.cls for blocker in declaration.blockers.values())
            waiting.extend(declaration.continuations)
        elif known.cls is not cls:
            raise DuplicateJobType(name, known.cls, cls)
    return found


def _check_results(declared: dict[str, Declaration]) -> None:
    """A chain resolves to what its first job says: each job it may come to must keep to that."""
    for declaration in declared.values():
        for cls in declaration.continuations:
            following = declared[name_of(cls)]
            if not covers(declaration.returns, following.returns):
                raise InvalidJobType(
                    declaration.name,
                    f"it resolves to {declaration.returns}, but continues with {following.name!r}, which resolves "
                    f"to {following.returns}",
                )
