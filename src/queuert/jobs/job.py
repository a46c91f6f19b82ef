"""The base classes of job types. The class statement is the whole declaration."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import datetime
from types import MemberDescriptorType
from typing import Any, ClassVar, Generic, Never, Self, TypeGuard, get_args, get_origin

from typing_extensions import TypeVar, dataclass_transform

from queuert.base.arguments import MAX_NAME_LENGTH, Duration, check_text
from queuert.base.own_types import OWN_TYPES, is_own
from queuert.errors import InvalidArgument, InvalidJobType
from queuert.jobs.deduplication import Debounce, Throttle
from queuert.jobs.limits import Limit, check_limit_name
from queuert.jobs.options import NO_OPTIONS, JobOptions, make_options
from queuert.jobs.scope import Scope, annotations_of, capture
from queuert.jobs.versions import stored_names
from queuert.records.dedup import Dedup
from queuert.records.retention import Keep

Returns_co = TypeVar("Returns_co", covariant=True)
Next_co = TypeVar("Next_co", covariant=True, default=Never)

_OPTIONS = "__queuert_options__"
_STORED = "__queuert_input__"
OWN_CLASSES: list[type[Job[Any, Any]]] = []
"""The library's own job classes: every client knows them, and none lists them."""


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(dataclasses.field,))
class Job(Generic[Returns_co, Next_co]):
    """A job type: a frozen, keyword-only dataclass whose fields are the input.

        class ChargeCard(Job[Receipt, "ChargeCard | SendReceipt"], name="charge-card"):
            order_id: int

    `Job[Returns, Next]` declares the output of the whole chain, and the jobs that this one may
    continue with (none by default). A field of type `Chain[X]` or `list[Chain[X]]` is a blocker:
    the job waits until that chain is complete. Use `EntryJob` for a job that starts a chain.

    The class statement takes these keywords:

    Args:
        name: The name that is stored with each job. It stays the same when the class is renamed.
        queue: The queue that the type belongs to (default: "default").
        keep: How long ended chains that start with this type are kept: see `Keep` (default: as the
            client declares). Only for an `EntryJob`.
        version: The version of the input, raised when old inputs no longer fit (default: 1). A
            class method `upgrade(data, version)` gets the plain JSON of an older input, and returns
            it in the form of this version. Workers leave jobs of newer versions alone.
        aliases: Earlier names of the type (default: none). Jobs that are stored with them are run.
        limit: How many jobs of a key may run at once or begin in a period: see `Limit` (default:
            no limit).
    """

    # Fields share their namespace with this class, so `set` is the only public name here.

    __queuert_name__: ClassVar[str]
    __queuert_queue__: ClassVar[str]
    __queuert_keep__: ClassVar[Keep | None]
    __queuert_limit__: ClassVar[Limit | None]
    __queuert_stored__: ClassVar[dict[str, int]]
    """The version of the inputs under each name that is stored, the current one first."""
    __queuert_scope__: ClassVar[Scope]

    def __init_subclass__(
        cls,
        *,
        name: str,
        queue: str = "default",
        keep: Keep | None = None,
        version: int = 1,
        aliases: Sequence[str] = (),
        limit: Limit | None = None,
    ) -> None:
        super().__init_subclass__()
        if cls.__module__ == __name__:
            return  # EntryJob below: a base, not a job type
        try:
            check_text(name, "name", MAX_NAME_LENGTH)
            check_text(queue, "queue", MAX_NAME_LENGTH)
            stored = stored_names(name, version, aliases)
        except InvalidArgument as error:
            raise InvalidJobType(cls.__qualname__, str(error)) from None
        if any(map(is_own, stored)) and not cls.__module__.startswith("queuert.features."):
            raise InvalidJobType(name, f"names that begin with {OWN_TYPES!r} are the library's own: choose another one")
        _check_bases(cls, name)
        _check_keep(cls, name, keep)
        try:
            dataclasses.dataclass(frozen=True, kw_only=True)(cls)
        except (TypeError, ValueError) as error:
            raise InvalidJobType(name, str(error)) from error
        _check_fields(cls, name)
        _check_limit(cls, name, limit)
        cls.__queuert_name__ = name
        cls.__queuert_queue__ = queue
        cls.__queuert_keep__ = keep
        cls.__queuert_limit__ = limit
        cls.__queuert_stored__ = stored
        types = [field.type for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
        cls.__queuert_scope__ = capture(cls, [*types, *arguments_of(cls)])
        if is_own(name):
            OWN_CLASSES.append(cls)

    def set(
        self,
        *,
        at: datetime | None = None,
        after: Duration | None = None,
        priority: int | None = None,
        id: str | None = None,
        deadline: datetime | Duration | None = None,
        dedup: Dedup | Debounce[Self] | Throttle | str | None = None,
    ) -> Self:
        """A copy of this job with options. A later call replaces options of an earlier one.

        Options do not affect equality, hash and repr.

        Args:
            at: When the job may run, as a datetime with a time zone (default: now).
            after: How long to wait before the job may run, as a timedelta or in seconds. Give this
                or `at`.
            priority: The lowest number runs first (default: 100).
            id: The id of the job (default: a new UUIDv7).
            deadline: The job expires if its handler has not begun by then: a datetime, or a
                timedelta or seconds from now.
            dedup: A deduplication key, a `Dedup`, a `Debounce` or a `Throttle`. Only for the first
                job of a chain.
        """
        options = make_options(at=at, after=after, priority=priority, id=id, deadline=deadline, dedup=dedup)
        copy = object.__new__(type(self))
        # The dataclass is frozen; its instances keep everything in __dict__.
        copy.__dict__.update(self.__dict__)
        copy.__dict__[_OPTIONS] = options_of(self).merged(options)
        return copy

    # These two are never called: they show type checkers the variance of the parameters.
    def _resolves_to(self) -> Returns_co:
        raise NotImplementedError

    def _continues_with(self) -> Next_co:
        raise NotImplementedError


class EntryJob(Job[Returns_co, Next_co], name=""):
    """A job type that may start a chain. Other jobs may wait for such a chain.

        class Greet(EntryJob[str], name="greet"):
            who: str

    The class statement takes the keywords of `Job`:

    Args:
        name: The name that is stored with each job. It stays the same when the class is renamed.
        queue: The queue that the type belongs to (default: "default").
        keep: How long ended chains that start with this type are kept: see `Keep` (default: as the
            client declares).
        version: The version of the input, raised when old inputs no longer fit (default: 1).
        aliases: Earlier names of the type (default: none).
        limit: How many jobs of a key may run at once or begin in a period: see `Limit` (default:
            no limit).
    """


JobClass = type[Job[Any, Any]]

_FOREIGN_FIELDS = {("msgspec", "Field"), ("pydantic", "FieldInfo"), ("attr", "_CountingAttr")}
"""What other libraries describe a field with. A dataclass would use it as the default value
itself.
"""

_RESERVED = ("set", "_resolves_to", "_continues_with")


def options_of(job: Job[Any, Any]) -> JobOptions:
    """The options that `job.set(...)` has collected."""
    options: JobOptions = job.__dict__.get(_OPTIONS, NO_OPTIONS)
    return options


def keep_stored(job: Job[Any, Any], data: bytes) -> None:
    """Remember the input that a job was read from: it may have fields that its class does not
    know.
    """
    job.__dict__[_STORED] = data


def stored_with(job: Job[Any, Any]) -> bytes | None:
    """The input that this job, or the job that it is a copy of, was read from."""
    data: bytes | None = job.__dict__.get(_STORED)
    return data


def name_of(cls: type) -> str:
    """The name that is stored for a job class. For any other class, its own name."""
    return str(vars(cls).get("__queuert_name__", cls.__qualname__))


def is_job_class(value: object) -> TypeGuard[JobClass]:
    """Whether it is a job type: a subclass of Job that has a name, not one of the bases."""
    return isinstance(value, type) and "__queuert_name__" in vars(value)


def arguments_of(cls: type) -> tuple[Any, ...]:
    """The arguments of `Job[...]` or `EntryJob[...]`, as written."""
    for base in vars(cls).get("__orig_bases__", ()):
        if get_origin(base) in (Job, EntryJob):
            return get_args(base)
    return ()


def _check_bases(cls: type, name: str) -> None:
    for base in cls.__mro__[1:]:
        if is_job_class(base):
            raise InvalidJobType(
                name,
                f"a job class cannot extend another job class ({base.__qualname__}): "
                "share fields through a frozen dataclass that both inherit from",
            )
    if not arguments_of(cls):
        raise InvalidJobType(name, "declare the output of the chain, as in EntryJob[int] or Job[None]")


def _check_keep(cls: type, name: str, keep: object) -> None:
    if keep is None:
        return
    if not isinstance(keep, Keep):
        raise InvalidJobType(name, f"keep takes a Keep(…), got {keep!r}")
    if not issubclass(cls, EntryJob):
        raise InvalidJobType(name, "keep belongs to the type that a chain starts with, which is an EntryJob")


def _check_limit(cls: type, name: str, limit: object) -> None:
    if limit is None:
        return
    if not isinstance(limit, Limit):
        raise InvalidJobType(name, f"limit takes a Limit(…), got {limit!r}")
    fields = {field.name for field in dataclasses.fields(cls)}
    if isinstance(limit.by, str) and limit.by not in fields:
        raise InvalidJobType(name, f"its limit is by {limit.by!r}, which is not a field")
    if isinstance(limit.weight, str) and limit.weight not in fields:
        raise InvalidJobType(name, f"the weight of its limit is {limit.weight!r}, which is not a field")
    try:
        check_limit_name(limit.name or name)
    except InvalidArgument as error:
        raise InvalidJobType(name, str(error)) from None


def _check_fields(cls: type, name: str) -> None:
    fields: dict[str, Any] = vars(cls)["__dataclass_fields__"]
    stored = {field.name for field in dataclasses.fields(cls)}
    for reserved in _RESERVED:
        if reserved in fields or getattr(cls, reserved) is not getattr(Job, reserved):
            raise InvalidJobType(name, f"{reserved!r} is a method of every job: give the field another name")
    for field in fields.values():
        if isinstance(getattr(cls, field.name, None), MemberDescriptorType):
            raise InvalidJobType(name, f"field {field.name!r} comes from a class with slots; leave out slots=True")
        library = type(field.default).__module__.partition(".")[0]
        if (library, type(field.default).__name__) in _FOREIGN_FIELDS:
            raise InvalidJobType(
                name,
                f"field {field.name!r}: a field of {library} would become the default itself: "
                "use dataclasses.field(…), or a plain default",
            )
        # An InitVar has no value to store. A field with init=False could not be set again from the
        # stored input.
        if not field.init or (field.name not in stored and "InitVar" in str(field.type)):
            raise InvalidJobType(name, f"field {field.name!r}: every field is input, InitVar and init=False are not")
    for base in cls.__mro__[1:]:
        own = vars(base)
        annotations: dict[str, Any] = annotations_of(base)
        if issubclass(base, Job) or "__dataclass_fields__" in own:
            continue
        for forgotten in annotations.keys() - fields.keys() - own.keys():
            if "ClassVar" in str(annotations[forgotten]):
                continue
            raise InvalidJobType(
                name,
                f"{forgotten!r} of {base.__qualname__} would not be a field: make "
                f"{base.__qualname__} a @dataclass(frozen=True, kw_only=True)",
            )
