"""Resolves annotations and forward references of job classes to real types.

For a class at module level, names are looked up in the module when the registry is built. By then
every class is defined. A class inside a function (or another class) also sees the names around it.
Those are gone when the function has returned. So the names that it mentions are kept when it is
defined, and classes that are defined later are added.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from inspect import currentframe
from types import FrameType, SimpleNamespace
from typing import Any, get_type_hints
from weakref import WeakSet

from queuert.errors import InvalidJobType

if sys.version_info >= (3, 14):
    # Annotations are evaluated when they are read, and may mention names that are not known then.
    import annotationlib

    def signature(function: Callable[..., Any]) -> inspect.Signature:
        return inspect.signature(function, annotation_format=annotationlib.Format.FORWARDREF)

    def annotations_of(cls: type) -> dict[str, Any]:
        return annotationlib.get_annotations(cls, format=annotationlib.Format.STRING)

else:
    signature, annotations_of = inspect.signature, inspect.get_annotations

_WORD = re.compile(r"\w+")


class Scope:
    """The names around one nested job class that its annotations mention."""

    __slots__ = ("__weakref__", "mentioned", "names")

    def __init__(self, mentioned: frozenset[str] = frozenset()) -> None:
        self.mentioned = mentioned
        self.names: dict[str, object] = {}

    def add(self, name: str, value: object) -> None:
        if name in self.mentioned:
            self.names.setdefault(name, value)


_scopes: dict[tuple[str, str], WeakSet[Scope]] = {}


def capture(cls: type, annotations: Iterable[object]) -> Scope:
    """Keep the names that `cls` mentions from the functions and classes around it.

    Called while `cls` is being defined.
    """
    around, _, own_name = cls.__qualname__.rpartition(".")
    if not around:
        return Scope()
    scope = Scope(frozenset(_WORD.findall(" ".join(map(str, annotations)))))
    scope.add(own_name, cls)
    for frame in _frames_around(cls):
        around_it = frame.f_locals
        for name in scope.mentioned:
            if name in around_it:
                scope.add(name, around_it[name])
    neighbours = _scopes.setdefault((cls.__module__, around), WeakSet())
    for neighbour in neighbours:
        neighbour.add(own_name, cls)
    neighbours.add(scope)
    return scope


def _frames_around(cls: type) -> Iterator[FrameType]:
    """The running functions and class bodies in which `cls` is being defined, innermost first."""
    enclosing: set[str] = set()
    around = cls.__qualname__
    while "." in around:
        around = around.rpartition(".")[0].removesuffix(".<locals>")
        enclosing.add(around)
    frame = currentframe()
    while frame is not None:
        if frame.f_code.co_qualname in enclosing and frame.f_globals.get("__name__") == cls.__module__:
            yield frame
        frame = frame.f_back


def resolve(type_name: str, what: str, annotation: object, module: str, names: Mapping[str, object]) -> Any:
    """The type of `annotation`. `names` take precedence over the module's names."""
    holder = SimpleNamespace(__annotations__={"it": annotation})
    known = vars(sys.modules[module]) if module in sys.modules else {}
    try:
        # Two different mappings on purpose. With the same one, typing would reuse the result of an
        # equal forward reference in another place.
        return get_type_hints(holder, globalns=known, localns=dict(names), include_extras=True)["it"]
    except NameError as error:
        raise InvalidJobType(
            type_name,
            f"{what} mentions {error.name!r}, which is not defined in {module}: import it at run time "
            "(not only under TYPE_CHECKING), or define it at module level",
        ) from error
    except Exception as error:  # an annotation is code, and can raise anything
        raise InvalidJobType(type_name, f"{what} is not a usable type: {error}") from error
