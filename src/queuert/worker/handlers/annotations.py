"""The job class that a handler's annotation names.

Type checkers report a handler that is registered for another class. At run time it would be given
jobs without the fields that it reads.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import UnionType
from typing import Any, Union, get_args, get_origin

from queuert.errors import InvalidArgument, InvalidJobType
from queuert.jobs import scope
from queuert.jobs.job import Job, is_job_class, name_of
from queuert.worker.handlers.attempt import Attempt, SyncAttempt


def check_annotation(job_class: type[Job[Any, Any]], function: Callable[[Any], Any]) -> None:
    """Raise `InvalidArgument` if the parameter is annotated with an attempt of another job class.

    An annotation that cannot be read is left to the type checker.
    """
    annotation = _annotation_of(function)
    named = _job_classes(_resolved(annotation, function, name_of(job_class)))
    if not named or any(_accepts(one, job_class, by_name=isinstance(annotation, str)) for one in named):
        return
    wanted = " | ".join(one.__qualname__ for one in named)
    raise InvalidArgument(
        f"the handler of {name_of(job_class)!r} takes an attempt of another job class, {wanted}: annotate it with "
        f"{job_class.__qualname__}, or register it with handles({wanted})"
    )


def _annotation_of(function: Callable[[Any], Any]) -> object:
    try:
        parameter = next(iter(scope.signature(function).parameters.values()))
    except ValueError:  # some callables written in C have no signature
        return None
    return None if parameter.annotation is inspect.Parameter.empty else parameter.annotation


def _resolved(annotation: object, function: Callable[[Any], Any], type_name: str) -> object:
    """The type that the annotation means; None if its names are not known at run time."""
    if annotation is None:
        return None
    while isinstance(function, partial):
        function = function.func
    plain = inspect.unwrap(function)
    module = str(getattr(plain, "__module__", ""))
    try:
        return scope.resolve(type_name, "the handler", annotation, module, _names_around(plain))
    except InvalidJobType:
        return None


def _names_around(function: Any) -> dict[str, object]:
    """What the function uses from the functions around it."""
    names: dict[str, object] = {}
    if inspect.isfunction(function):
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            with suppress(ValueError):  # it has no value yet
                names[name] = cell.cell_contents
    return names


def _job_classes(annotation: object) -> list[type[Job[Any, Any]]]:
    """The job classes in `Attempt[…]`. Empty if it allows others too, as type variables do."""
    if get_origin(annotation) not in (Attempt, SyncAttempt):
        return []
    job = get_args(annotation)[0]
    found = get_args(job) if get_origin(job) in (Union, UnionType) else (job,)
    return list(found) if all(is_job_class(one) for one in found) else []


def _accepts(named: type, job_class: type, *, by_name: bool) -> bool:
    # A name is looked up in the module. A class inside a function can have the same name.
    return named is job_class or (by_name and named.__name__ == job_class.__name__)
