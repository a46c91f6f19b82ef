"""The command of PostgreSQL programs: SQL with the server's own placeholders, and their values.

The `.sql` files are written as described in `queuert.adapters.sql.statement`, with `:name` for a
parameter. When they are loaded, the names become `$1, $2 …`, which every driver sends as it is.

Values are str, int, float, bool, None, aware datetimes, and lists of these. The SQL always casts
them (`:ids::text[]`, `:now::timestamptz`), so that all drivers pass them alike. JSON and uuids are
text in both directions (`:input::text::jsonb`, `id::text`), so that the codecs of a connection make
no difference.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from queuert.adapters.sql.statement import Text, load_statements

SEPARATOR = "\x1e"
"""Between JSON texts that are sent as one. They contain no control characters themselves."""


_PLACEHOLDER = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\$([0-9]+)""")
"""Or quoted text, which is skipped."""


class PgStatement(msgspec.Struct, frozen=True):
    """SQL and its values. The answer is a list of tuples."""

    text: str
    values: tuple[Any, ...] = ()
    writes: bool = True
    alone: bool = False
    """It cannot run inside a transaction block, like CREATE INDEX CONCURRENTLY or VACUUM."""
    indifferent: bool = False
    """Session settings make no difference to it, so the connection need not be reset first."""

    def spelled_out(self) -> str:
        """The text with its values in it, to be sent in one message with other statements, which
        cannot have values. Only for numbers, text and None."""
        first, rest = _pieces(self.text)
        literals = [_literal(value) for value in self.values]
        return first + "".join([literals[number] + piece for number, piece in rest])


@lru_cache(maxsize=64)
def _pieces(text: str) -> tuple[str, list[tuple[int, str]]]:
    """SQL around its placeholders: what comes before the first one, and each one's position among
    the values, with what comes after it.
    """
    pieces, numbers, end = list[str](), list[int](), 0
    for match in _PLACEHOLDER.finditer(text):
        if match[1] is not None:
            pieces.append(text[end : match.start()])
            numbers.append(int(match[1]) - 1)
            end = match.end()
    first, *following = [*pieces, text[end:]]
    return first, list(zip(numbers, following, strict=True))


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, int):
        return f"'{value}'"
    if not isinstance(value, str) or "\0" in value:
        raise ValueError(f"{value!r} cannot be spelled out in a statement")
    if "\\" in value:
        # With E, a backslash means the same whatever standard_conforming_strings is.
        return "E'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
    return "'" + value.replace("'", "''") + "'"


class PgText(msgspec.Struct, frozen=True):
    """A statement without its values: calling it with them makes one that can be yielded."""

    name: str
    text: str
    names: tuple[str, ...]
    """The parameters, in the order of their placeholders."""
    writes: bool

    def __call__(self, **parameters: Any) -> PgStatement:
        if len(parameters) != len(self.names):
            raise LookupError(f"{self.name} takes {sorted(self.names)}, got {sorted(parameters)}")
        return PgStatement(self.text, tuple([parameters[name] for name in self.names]), self.writes)


def load_pg_statements(package: str, replacements: Mapping[str, str]) -> dict[str, PgText]:
    """Every statement of the `.sql` files in a package, by name, ready for the server."""
    return {name: compile_text(text) for name, text in load_statements(package, replacements).items()}


def compile_text(text: Text) -> PgText:
    compiled, names = number_placeholders(text.text)
    return PgText(text.name, compiled, names, text.writes)


# A colon and a name, but not the type after `::`, nor an upper bound as in `list[1:n]`. Quoted text
# and comments are skipped: that is what the alternatives before the last one are for.
_TOKEN = re.compile(
    r"""
    '(?:[^']|'')*'                      # a string; E'…' with \' is not written in our files
    | "(?:[^"]|"")*"                    # a quoted name
    | --[^\n]*
    | /\*.*?\*/
    | (\$\w*\$).*?\1                    # a dollar-quoted body
    | ::
    | (?<![\w\])]):([A-Za-z_]\w*)
    """,
    re.VERBOSE | re.DOTALL,
)


def number_placeholders(source: str) -> tuple[str, tuple[str, ...]]:
    """The SQL with `$1` and so on instead of `:name`, and the names in their order."""
    numbers: dict[str, int] = {}

    def replacement(match: re.Match[str]) -> str:
        name: str | None = match[2]
        return match[0] if name is None else f"${numbers.setdefault(name, len(numbers) + 1)}"

    return _TOKEN.sub(replacement, source), tuple(numbers)
