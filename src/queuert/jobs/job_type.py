"""A registered job type: everything the engine needs to know about a job class."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

from msgspec import inspect

from queuert.errors import InvalidJobType, JobTypeValidationError, ValidationCode
from queuert.jobs.chain import Chain
from queuert.jobs.codec import Hooks
from queuert.jobs.declaration import Declaration, members
from queuert.jobs.job import EntryJob, Job, JobClass, name_of
from queuert.jobs.type_codec import CodecError, TypeCodec
from queuert.jobs.values import parts
from queuert.model import BlockerRef, BlockerRow

logger = logging.getLogger("queuert.jobs")

LARGE_INPUT = 1_000_000
"""Larger inputs (in bytes) work, but log a warning once per job type."""


class BlockerField(NamedTuple):
    """A field that holds the chain to wait for, or, if `many`, a list of them."""

    many: bool
    chain_type: str


class JobType:
    """A job class, its name and queue, and how its values are checked, written and read."""

    __slots__ = (
        "_allowed",
        "_chain_from_blocker",
        "_input",
        "_output",
        "_warned",
        "blocker_fields",
        "cls",
        "continuations",
        "is_entry",
        "name",
        "queue",
        "returns",
    )

    def __init__(
        self, declaration: Declaration, hooks: Hooks, chain_from_blocker: Callable[[BlockerRow], Chain[Any]]
    ) -> None:
        self._chain_from_blocker = chain_from_blocker
        self.cls: JobClass = declaration.cls
        self.name: str = declaration.name
        self.queue: str = declaration.cls.__queuert_queue__
        self.is_entry: bool = issubclass(declaration.cls, EntryJob)
        self.returns: Any = declaration.returns
        self._allowed = frozenset(declaration.continuations)
        self.continuations: frozenset[str] = frozenset(map(name_of, declaration.continuations))
        self.blocker_fields: dict[str, BlockerField] = {
            field: BlockerField(blocker.many, name_of(blocker.cls)) for field, blocker in declaration.blockers.items()
        }
        for field, hint in declaration.fields.items():
            self._check_stored(f"field {field!r}", hint, hooks, chains=field in self.blocker_fields)
        self._input = self._codec("its input", declaration.cls, hooks)
        # A chain whose output is Never does not end, so it has no output to write.
        self._output: TypeCodec[Any] | None = None
        if members(declaration.returns):
            self._check_stored("its result", declaration.returns, hooks, chains=False)
            self._output = self._codec("its result", declaration.returns, hooks)
        self._warned = False

    def encode_input(self, job: Job[Any, Any]) -> bytes:
        """The input as JSON, checked: `JobTypeValidationError` ("invalid_input"). `blockers_of`
        checks chains.
        """
        try:
            data = self._input.encode(job)
        except CodecError as error:
            code: ValidationCode = "invalid_blockers" if error.field in self.blocker_fields else "invalid_input"
            raise self._refused(code, "input", error) from error
        if len(data) > LARGE_INPUT and not self._warned:
            self._warned = True
            logger.warning(
                "job type %r: storing an input of %d bytes; keep large data elsewhere, and pass a reference to it",
                self.name,
                len(data),
            )
        return data

    def decode_input(self, data: bytes, blockers: Sequence[BlockerRow] = ()) -> Job[Any, Any]:
        """The job of a stored input.

        Its blocker fields get the status and output of their chains from `blockers`.
        """
        try:
            job: Job[Any, Any] = self._input.decode(data)
        except CodecError as error:
            raise self._refused("invalid_input", "stored input", error) from error
        if blockers:
            known = {row.chain_id: self._chain_from_blocker(row) for row in blockers}
            for field, (many, _) in self.blocker_fields.items():
                chains = [known.get(chain.id, chain) for chain in self._chains_in(job, field, many)]
                # The decoder has just made this job and no other code has it yet, so it may be
                # changed.
                job.__dict__[field] = chains if many else chains[0]
        return job

    def encode_output(self, value: object) -> bytes:
        """The output as JSON, checked: `JobTypeValidationError` ("invalid_output")."""
        if self._output is None:
            raise JobTypeValidationError("invalid_output", self.name, "its chain never resolves: it has no output")
        try:
            return self._output.encode(value)
        except CodecError as error:
            raise self._refused("invalid_output", "output", error) from error

    def decode_output(self, data: bytes) -> Any:
        """Decode an output into the type that the job class declares."""
        if self._output is None:
            raise JobTypeValidationError("invalid_output", self.name, "its chain never resolves: it has no output")
        try:
            return self._output.decode(data)
        except CodecError as error:
            raise self._refused("invalid_output", "stored output", error) from error

    def blockers_of(self, job: Job[Any, Any]) -> tuple[BlockerRef, ...]:
        """The chains that `job` waits for, each once: `JobTypeValidationError` ("invalid_blockers")
        if one is wrong.
        """
        if not self.blocker_fields:
            return ()
        found: dict[str, BlockerRef] = {}
        for field, (many, chain_type) in self.blocker_fields.items():
            for chain in self._chains_in(job, field, many):
                if not isinstance(chain, Chain):
                    raise self._wrong_blocker(field, f"expected a Chain, got {type(chain).__name__}")
                if chain.chain_type != chain_type:
                    raise self._wrong_blocker(
                        field, f"a chain of {chain_type!r} is expected, {chain.id} is one of {chain.chain_type!r}"
                    )
                found.setdefault(chain.id, BlockerRef(chain.id, chain_type))
        return tuple(found.values())

    def check_entry(self) -> None:
        """`JobTypeValidationError` ("not_entry_point") if no chain may start with this type."""
        if not self.is_entry:
            raise JobTypeValidationError(
                "not_entry_point", self.name, "no chain can start with it: only an EntryJob can be started"
            )

    def check_continuation(self, following: Job[Any, Any]) -> None:
        """`JobTypeValidationError` ("invalid_continuation") if a job of this type may not continue
        with that one.
        """
        if type(following) not in self._allowed:
            allowed = sorted(self.continuations)
            given = name_of(type(following))
            raise JobTypeValidationError(
                "invalid_continuation",
                self.name,
                f"it cannot continue with {given!r}; allowed: {', '.join(allowed) or 'nothing, it ends its chain'}",
                {"given": given, "allowed": allowed},
            )

    def __repr__(self) -> str:
        return f"<JobType {self.name!r}: {self.cls.__module__}.{self.cls.__qualname__}>"

    def _chains_in(self, job: Job[Any, Any], field: str, many: bool) -> Sequence[Any]:
        value: Any = getattr(job, field)
        if not many:
            return (value,)
        if not isinstance(value, list | tuple):
            raise self._wrong_blocker(field, f"expected a list of chains, got {type(value).__name__}")
        return cast("Sequence[Any]", value)

    def _check_stored(self, what: str, hint: Any, hooks: Hooks, *, chains: bool) -> None:
        """Build a codec for one part of the class alone, so that an error can name it."""
        self._codec(what, hint, hooks)
        if not chains and any(
            isinstance(part, inspect.CustomType) and part.cls is Chain for part in parts(inspect.type_info(hint))
        ):
            raise InvalidJobType(self.name, f"{what}: a chain cannot be part of another value")

    def _codec(self, what: str, hint: Any, hooks: Hooks) -> TypeCodec[Any]:
        try:
            return TypeCodec(hint, hooks)
        except Exception as error:
            raise InvalidJobType(self.name, f"{what} cannot be stored as JSON: {error}") from error

    def _refused(self, code: ValidationCode, what: str, error: CodecError) -> JobTypeValidationError:
        details = {key: value for key, value in (("field", error.field), ("path", error.path)) if value is not None}
        return JobTypeValidationError(code, self.name, f"{what} refused: {error}", details)

    def _wrong_blocker(self, field: str, message: str) -> JobTypeValidationError:
        return JobTypeValidationError("invalid_blockers", self.name, f"field {field!r}: {message}", {"field": field})
