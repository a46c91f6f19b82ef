"""Fields that are not shown to anyone: cards, tokens, names of patients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

from queuert.errors import InvalidArgument
from queuert.jobs.filter import TypeOrName
from queuert.jobs.job import is_job_class, name_of

Hide: TypeAlias = Sequence[str] | Mapping[TypeOrName, Sequence[str]]
"""Names of fields, for all job types or by type."""

HIDDEN = "•••"
SHORTEST = 4
"""Characters of a hidden value that is also removed from texts: shorter ones would match
anything."""


class Hiding:
    """What is hidden, of which job types."""

    def __init__(self, hide: Hide) -> None:
        if isinstance(hide, str):
            raise InvalidArgument(f"hide takes a list of field names, got one string: [{hide!r}]")
        self._everywhere: frozenset[str] = frozenset()
        self._by_type: dict[str, frozenset[str]] = {}
        if isinstance(hide, Mapping):
            for job_type, names in hide.items():
                if isinstance(names, str):
                    raise InvalidArgument(f"hide takes lists of field names, got the string {names!r}")
                self._by_type[name_of(job_type) if is_job_class(job_type) else str(job_type)] = frozenset(names)
        else:
            self._everywhere = frozenset(hide)

    def of(self, job_type: str | None) -> frozenset[str]:
        """The fields that are hidden in jobs of this type. `charge@2` is a version of `charge`."""
        name = job_type or ""
        return (
            self._everywhere
            | self._by_type.get(name, frozenset())
            | self._by_type.get(name.partition("@")[0], frozenset())
        )

    def redactor(self, job_type: str | None, *values: Any) -> Redactor:
        """For a job of this type. `values`: where the hidden values are, so that they can be found
        in texts."""
        return Redactor(self.of(job_type), values)


class Redactor:
    """Hides fields of values, and their contents in texts."""

    def __init__(self, fields: frozenset[str], values: Sequence[Any]) -> None:
        self._fields = fields
        found: set[str] = set()
        for value in values if fields else ():
            found.update(_hidden_texts(value, fields, within=False))
        # Longer ones first: one may be a part of another.
        self._texts = sorted((text for text in found if len(text) >= SHORTEST), key=len, reverse=True)

    def value(self, value: Any) -> Any:
        """JSON without the hidden fields."""
        if not self._fields:
            return value
        if isinstance(value, Mapping):
            mapping = cast("Mapping[str, Any]", value)
            return {name: HIDDEN if name in self._fields else self.value(each) for name, each in mapping.items()}
        if isinstance(value, list):
            return [self.value(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
        return value

    def text(self, text: str) -> str:
        """Text without the hidden values."""
        for each in self._texts:
            text = text.replace(each, HIDDEN)
        return text

    def restore(self, edited: Any, stored: Any) -> Any:
        """What a person has edited, with the hidden values that were left as they are."""
        if isinstance(edited, dict) and isinstance(stored, Mapping):
            new, old = cast("dict[str, Any]", edited), cast("Mapping[str, Any]", stored)
            return {
                name: old[name] if name in self._fields and value == HIDDEN and name in old
                else self.restore(value, old.get(name))
                for name, value in new.items()
            }  # fmt: skip
        if isinstance(edited, list) and isinstance(stored, list):
            items: list[Any] = edited  # pyright: ignore[reportUnknownVariableType]
            before: list[Any] = stored  # pyright: ignore[reportUnknownVariableType]
            return [self.restore(each, before[at] if at < len(before) else None) for at, each in enumerate(items)]
        return cast("Any", edited)


def _hidden_texts(value: Any, fields: frozenset[str], *, within: bool) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, each in cast("Mapping[str, Any]", value).items():
            yield from _hidden_texts(each, fields, within=within or name in fields)
    elif isinstance(value, list):
        items: list[Any] = value  # pyright: ignore[reportUnknownVariableType]
        for each in items:
            yield from _hidden_texts(each, fields, within=within)
    elif within and value is not None and not isinstance(value, bool):
        yield str(value)
