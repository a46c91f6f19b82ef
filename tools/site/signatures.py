"""Signatures as text, with every keyword, and with the full names of the public types in them."""

from __future__ import annotations

import enum
import inspect
import re
import typing
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from types import UnionType
from typing import Any

from tools.site.docstrings import public_names

UNPACKED = re.compile(r"Unpack\[(\w+)\]")
ADDRESS = re.compile(r" at 0x[0-9a-f]+")
IDENTIFIER = re.compile(r"(?<![\w.'\"])([A-Z]\w*)(\[?)")
ALIASES = (typing.Union, UnionType, Callable)
OPAQUE = re.compile(r"<(?:function |class ')?([\w.]+)[^>]*>")
STARS: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


@cache
def public_objects() -> dict[int, str]:
    """The full name of each public class, by its identity: annotations say only `Pause`, and there are three."""
    return {
        id(value): full
        for full in reversed(list(dict.fromkeys(public_names().values())))
        if inspect.isclass(value := getattr(import_module(full.rpartition(".")[0]), full.rpartition(".")[2]))
    }


def annotation_text(annotation: Any, scope: dict[str, Any]) -> str:
    """The annotation, with the full names of what is public. Sphinx shows the last part, as a link."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    for quoted in ("typing.", "typing_extensions.", "collections.abc.", "datetime."):
        text = text.replace(quoted, "")
    text = re.sub(r"\bqueuert(?:_django)?(?:\.[a-z_]+)*\.(?=[A-Z])", "", text)

    def full(found: re.Match[str]) -> str:
        name, bracket = found.groups()
        value = scope.get(name)
        is_alias = typing.get_origin(value) in ALIASES and not bracket and "ForwardRef" not in repr(value)
        if is_alias and name not in public_names():
            # A short name of ours, which readers do not know.
            is_union = typing.get_origin(value) is not Callable
            parts = typing.get_args(value) if is_union else [value]
            return " | ".join(annotation_text(part, {}) for part in parts)
        return (public_objects().get(id(value)) or public_names().get(name, name)) + bracket

    return IDENTIFIER.sub(full, text)


def scope_of(value: Any) -> dict[str, Any]:
    """The names that an annotation may use: those of the module."""
    return vars(import_module(inspect.unwrap(value).__module__))


def default_text(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    return OPAQUE.sub(lambda found: found[1].rpartition(".")[2], ADDRESS.sub("", repr(value)))


def keywords(function: Callable[..., Any], name: str) -> Iterator[str]:
    """The keywords of `**options: Unpack[name]`. They are optional, and have no default of their own."""
    options = inspect.unwrap(function).__globals__[name]
    for key, annotation in inspect.get_annotations(options).items():
        text = annotation_text(getattr(annotation, "__forward_arg__", annotation), scope_of(options))
        yield f"{key}: {text} = ..."


def arguments(function: Callable[..., Any], signature: inspect.Signature) -> str:
    parts: list[str] = []
    seen_star = False
    values = list(signature.parameters.values())
    for index, parameter in enumerate(values):
        if index == 0 and parameter.name in ("self", "cls"):
            continue
        annotation = (
            "" if parameter.annotation is parameter.empty else annotation_text(parameter.annotation, scope_of(function))
        )
        if parameter.kind is parameter.VAR_KEYWORD and (unpacked := UNPACKED.fullmatch(annotation)):
            parts += [] if seen_star else ["*"]
            parts += keywords(function, unpacked[1])
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not seen_star:
            parts.append("*")
            seen_star = True
        star = STARS.get(parameter.kind, "")
        seen_star |= parameter.kind is parameter.VAR_POSITIONAL
        text = f"{star}{parameter.name}" + (f": {annotation}" if annotation else "")
        if parameter.default is not parameter.empty:
            text += f"{' = ' if annotation else '='}{default_text(parameter.default)}"
        parts.append(text)
        following = values[index + 1] if index + 1 < len(values) else None
        if parameter.kind is parameter.POSITIONAL_ONLY and (following is None or following.kind is not parameter.kind):
            parts.append("/")
    return ", ".join(parts)


def signature_text(function: Callable[..., Any], *, with_result: bool = True) -> str:
    signature = inspect.signature(function)
    result = signature.return_annotation
    arrow = "" if result is signature.empty or not with_result else f" -> {annotation_text(result, scope_of(function))}"
    return f"({arguments(function, signature)}){arrow}"


def signatures(function: Callable[..., Any]) -> list[str]:
    overloads = typing.get_overloads(inspect.unwrap(function))
    return list(dict.fromkeys(signature_text(each) for each in overloads or [function]))
