"""The declaration of a job class, read from the class and checked."""

from __future__ import annotations

import dataclasses
import types
from datetime import date, datetime
from typing import Annotated, Any, Literal, NamedTuple, Never, NoReturn, TypeVar, Union, get_args, get_origin

from queuert.errors import InvalidJobType
from queuert.jobs.chain import Chain
from queuert.jobs.job import EntryJob, Job, JobClass, arguments_of, is_job_class, name_of
from queuert.jobs.scope import resolve

_BLOCKER_FORMS = (
    "a blocker is a field of type Chain[X] or list[Chain[X]], where X is one entry job "
    "(for several, write Chain[X] | Chain[Y])"
)


class Blocker(NamedTuple):
    """A field that contains a chain that started with one of `classes`, or, if `many`, a list of
    such chains.
    """

    many: bool
    classes: tuple[JobClass, ...]

    @property
    def stored_as(self) -> Any:
        """The type of the field for msgspec, which takes no union of chains: `Chain[X | Y]`."""
        generic: Any = Chain
        union: Any = Union
        chain = generic[union[self.classes]]
        return types.GenericAlias(list, (chain,)) if self.many else chain


@dataclasses.dataclass(frozen=True, slots=True)
class Declaration:
    """A job class with every name resolved."""

    cls: JobClass
    name: str
    returns: Any
    continuations: tuple[JobClass, ...]
    fields: dict[str, Any]
    blockers: dict[str, Blocker]


def read(cls: JobClass) -> Declaration:
    """Resolve and check the whole declaration of `cls`.

    Its annotations become real types, for msgspec.
    """
    name = name_of(cls)
    returns, following = _arguments(cls, name)
    fields = _fields(cls, name)
    blockers = {
        field: blocker for field, hint in fields.items() if (blocker := _blocker(name, field, hint)) is not None
    }
    fields |= {field: blocker.stored_as for field, blocker in blockers.items()}
    cls.__annotations__ = fields
    return Declaration(
        cls=cls,
        name=name,
        returns=_check_returns(name, returns),
        continuations=tuple(_continuation(name, member) for member in members(following)),
        fields=fields,
        blockers=blockers,
    )


def members(hint: Any) -> list[Any]:
    """The members of a union or of a Literal with several values. Empty for Never."""
    origin = get_origin(hint)
    if hint in (Never, NoReturn):
        return []
    if origin in (Union, types.UnionType):
        return [member for argument in get_args(hint) for member in members(argument)]
    if origin is Literal:
        return [Literal[value] for value in get_args(hint)]
    return [type(None) if hint is None else hint]


def covers(wide: Any, narrow: Any) -> bool:
    """Whether every value of `narrow` is also a value of `wide`, even after it was stored as
    JSON.
    """
    return all(any(_covers(outer, inner) for outer in members(wide)) for inner in members(narrow))


def _covers(outer: Any, inner: Any) -> bool:
    if outer is Any or outer == inner:
        return True
    if get_origin(inner) is Annotated:
        return _covers(outer, get_args(inner)[0])
    if get_origin(inner) is Literal:
        return outer is type(get_args(inner)[0])
    # JSON has one kind of number. But True is not read back as an int, nor a datetime as a date.
    if (outer, inner) == (float, int):
        return True
    if (outer, inner) in ((int, bool), (date, datetime)):
        return False
    try:
        return issubclass(inner, outer)
    except TypeError:  # list[int], a TypedDict, …: the types must be the same
        return False


def _arguments(cls: JobClass, name: str) -> tuple[Any, Any]:
    names = cls.__queuert_scope__.names
    given = [
        resolve(name, what, argument, cls.__module__, names)
        for what, argument in zip(("its result", "its continuation"), arguments_of(cls), strict=False)
    ]
    return given[0], given[1] if len(given) > 1 else Never


def _fields(cls: JobClass, name: str) -> dict[str, Any]:
    names = cls.__queuert_scope__.names
    hints: dict[str, Any] = {}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        # An inherited field is the same object as in the class that declares it, which may be in
        # another module.
        owner = next(
            base
            for base in reversed(cls.__mro__)
            if vars(base).get("__dataclass_fields__", {}).get(field.name) is field
        )
        hints[field.name] = resolve(name, f"field {field.name!r}", field.type, owner.__module__, names)
    return hints


def _check_returns(name: str, returns: Any) -> Any:
    for member in members(returns):
        if isinstance(member, TypeVar):
            raise InvalidJobType(name, f"its result is the type variable {member}: replace it with a real type")
        if isinstance(member, type) and issubclass(member, Job):
            raise InvalidJobType(
                name, "its result cannot be a job, because a handler that returns a job continues the chain"
            )
    return returns


def _continuation(name: str, member: Any) -> JobClass:
    if not is_job_class(member):
        raise InvalidJobType(name, f"it can only continue with job classes, not with {member!r}")
    return member


def _blocker(name: str, field: str, hint: Any) -> Blocker | None:
    many = get_origin(hint) is list
    if not mentions_chain(hint):
        return None
    found: list[JobClass] = []
    for chain in members(get_args(hint)[0] if many else hint):
        (cls,) = get_args(chain) if get_origin(chain) is Chain else (None,)
        if not is_job_class(cls):
            raise InvalidJobType(name, f"field {field!r}: {_BLOCKER_FORMS}; not {hint}")
        if not issubclass(cls, EntryJob):
            raise InvalidJobType(
                name,
                f"field {field!r}: {name_of(cls)!r} is not an entry job, so no chain can start with it: "
                "derive it from EntryJob",
            )
        found.append(cls)
    return Blocker(many, tuple(found))


def mentions_chain(hint: Any) -> bool:
    if hint is Chain or get_origin(hint) is Chain:
        return True
    arguments = get_args(hint)[:1] if get_origin(hint) is Annotated else get_args(hint)
    return any(mentions_chain(argument) for argument in arguments)
