"""A registered job type: everything the engine needs to know about a job class."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from inspect import getattr_static as inspect_static
from typing import Any, NamedTuple, cast

import msgspec
from msgspec import inspect

from queuert.errors import InvalidJobType, JobTypeValidationError, ValidationCode
from queuert.jobs.chain import Chain, plain_json
from queuert.jobs.codecs.codec import Hooks, TypedChain
from queuert.jobs.codecs.type_codec import CodecError, TypeCodec
from queuert.jobs.codecs.values import parts
from queuert.jobs.declaration import Declaration, members
from queuert.jobs.job import EntryJob, Job, JobClass, keep_stored, name_of, stored_with
from queuert.jobs.limits import lane_for, weight_for
from queuert.records.model import BlockerRef, BlockerRow

logger = logging.getLogger("queuert.jobs")

LARGE = 1_000_000
"""Larger inputs and outputs (in bytes) work, but log a warning once per job type."""


class BlockerField(NamedTuple):
    """A field that holds the chain to wait for, or, if `many`, a list of them.

    Each is of one of the types.
    """

    many: bool
    chain_types: tuple[str, ...]


class JobType:
    """A job class, its name and queue, and how its values are checked, written and read."""

    __slots__ = (
        "_allowed",
        "_chain_from_blocker",
        "_fields",
        "_input",
        "_mixed",
        "_output",
        "_upgrade_from",
        "_warned",
        "blocker_fields",
        "cls",
        "continuations",
        "is_entry",
        "is_plain",
        "limit",
        "name",
        "names",
        "queue",
        "returns",
    )

    def __init__(
        self, declaration: Declaration, hooks: Hooks, chain_from_blocker: Callable[[BlockerRow], Chain[Any]]
    ) -> None:
        self._chain_from_blocker = chain_from_blocker
        self.cls: JobClass = declaration.cls
        self.names: tuple[str, ...] = tuple(declaration.cls.__queuert_stored__)
        """All names that jobs of the class are stored with. The name for new jobs comes first."""
        self.name: str = self.names[0]
        self._upgrade_from: int | None = None
        self._fields = frozenset(declaration.fields)
        self.queue: str = declaration.cls.__queuert_queue__
        self.limit = declaration.cls.__queuert_limit__
        self.is_entry: bool = issubclass(declaration.cls, EntryJob)
        self.returns: Any = declaration.returns
        self._allowed = frozenset(declaration.continuations)
        self.continuations: frozenset[str] = frozenset(map(name_of, declaration.continuations))
        self.blocker_fields: dict[str, BlockerField] = {
            field: BlockerField(blocker.many, tuple(name for cls in blocker.classes for name in cls.__queuert_stored__))
            for field, blocker in declaration.blockers.items()
        }
        self.is_plain: bool = self.is_entry and not self.blocker_fields and self.limit is None
        """Whether a chain can start with it, and its jobs need nothing besides their input."""
        self._mixed = {
            field: blocker.many for field, blocker in declaration.blockers.items() if len(blocker.classes) > 1
        }
        for field, hint in declaration.fields.items():
            self._check_stored(f"field {field!r}", hint, hooks, chains=field in self.blocker_fields)
        self._input = self._codec("its input", declaration.cls, hooks)
        # A chain whose output is Never does not end, so it has no output to write.
        self._output: TypeCodec[Any] | None = None
        if members(declaration.returns):
            self._check_stored("its result", declaration.returns, hooks, chains=False)
            self._output = self._codec("its result", declaration.returns, hooks)
        self._warned: set[str] = set()

    def stored_as(self, name: str) -> JobType:
        """The same type, for jobs that are stored with this name: perhaps of an older version."""
        if name == self.name:
            return self
        other = copy.copy(self)
        other.name = name
        version = self.cls.__queuert_stored__[name]
        has_upgrade = inspect_static(self.cls, "upgrade", None)
        if version < self.cls.__queuert_stored__[self.name] and isinstance(has_upgrade, classmethod):
            other._upgrade_from = version
        return other

    def encode_input(self, job: Job[Any, Any]) -> bytes:
        """The input as JSON, checked: `JobTypeValidationError` ("invalid_input"). `blockers_of`
        checks chains.
        """
        try:
            data = self._input.encode(self._with_types(job) if self._mixed else job)
        except CodecError as error:
            code: ValidationCode = "invalid_blockers" if error.field in self.blocker_fields else "invalid_input"
            raise self._refused(code, "input", error) from error
        stored = stored_with(job)
        if stored is not None:
            data = self._with_unknown_fields(data, stored)
        if len(data) > LARGE:
            self._warn("input", data)
        return data

    def _with_unknown_fields(self, data: bytes, stored: bytes) -> bytes:
        """Newer code may have stored fields that this class does not know, or that the class of a
        value in it does not know. A job that was read and is passed on keeps them: what was not
        changed is stored again as it was.
        """
        now: Any = plain_json(data)
        before: Any = plain_json(stored)
        if all(name in now and now[name] == value for name, value in before.items()):
            return data
        read: Any = plain_json(self._input.encode(self._input.decode(stored)))
        kept = {
            name: value
            for name, value in before.items()
            if name not in self._fields or (name in now and name in read and now[name] == read[name])
        }
        return msgspec.json.encode({**now, **kept})

    def _upgraded(self, data: bytes, version: int) -> bytes:
        upgrade: Any = self.cls.upgrade  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
        try:
            return msgspec.json.encode(upgrade(plain_json(data), version))
        except Exception as error:
            raise CodecError(f"upgrade() from version {version} failed: {type(error).__name__}: {error}") from error

    def decode_input(self, data: bytes, blockers: Sequence[BlockerRow] = ()) -> Job[Any, Any]:
        """The job of a stored input.

        Its blocker fields get the status and output of their chains from `blockers`.
        """
        try:
            if self._upgrade_from is not None:
                job: Job[Any, Any] = self._input.decode(self._upgraded(data, self._upgrade_from))
            else:
                job = self._input.decode(data)
                keep_stored(job, data)
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
            data = self._output.encode(value)
        except CodecError as error:
            raise self._refused("invalid_output", "output", error) from error
        if len(data) > LARGE:
            self._warn("output", data)
        return data

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
        for field, (many, chain_types) in self.blocker_fields.items():
            for chain in self._chains_in(job, field, many):
                if not isinstance(chain, Chain):
                    raise self._wrong_blocker(field, f"expected a Chain, got {type(chain).__name__}")
                if chain.chain_type not in chain_types:
                    expected = " or ".join(map(repr, chain_types))
                    raise self._wrong_blocker(
                        field, f"a chain of {expected} is expected, {chain.id} is one of {chain.chain_type!r}"
                    )
                found.setdefault(chain.id, BlockerRef(chain.id, chain.chain_type))
        return tuple(found.values())

    def lane_of(self, job: Job[Any, Any]) -> str | None:
        """The lane of a new job, if the type has a limit: `JobTypeValidationError`
        ("invalid_limit_key") if it has no valid key.
        """
        return None if self.limit is None else lane_for(self.limit, job, self.names[0])

    def weight_of(self, job: Job[Any, Any]) -> float | None:
        """The weight of that lane, if its limit takes it from the job: `JobTypeValidationError`
        ("invalid_limit_weight") if it is not a valid one.
        """
        return None if self.limit is None else weight_for(self.limit, job, self.names[0])

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

    def _with_types(self, job: Job[Any, Any]) -> Job[Any, Any]:
        """The job, with what is stored of chains in fields for several types."""
        typed = copy.copy(job)
        for field, many in self._mixed.items():
            if field in job.__dict__:
                typed.__dict__[field] = _typed(job.__dict__[field], many)
        return typed

    def _warn(self, what: str, data: bytes) -> None:
        """Once for each type, not once for each job."""
        if what not in self._warned:
            self._warned.add(what)
            logger.warning(
                "job type %r: storing an %s of %d bytes; keep large data elsewhere, and pass a reference to it",
                self.name,
                what,
                len(data),
            )

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


def _typed(value: Any, many: bool) -> Any:
    """Anything but a chain, or a list of chains, stays as it is: the decoder will refuse it."""
    if many and isinstance(value, list | tuple):
        return [_typed(each, many=False) for each in cast("Sequence[Any]", value)]
    return TypedChain(value) if isinstance(value, Chain) else value  # pyright: ignore[reportUnknownArgumentType]
