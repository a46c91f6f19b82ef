"""The command of PostgreSQL programs: SQL with the server's own placeholders, and the values for them.

The `.sql` files are written as `queuert.sql.statement` says, with `:name` for a parameter. When they are loaded the
names become `$1, $2 …`, which every driver sends as it is.

Values are str, int, float, bool, None, aware datetimes, and lists of these. The SQL always says what they are
(`:ids::text[]`, `:now::timestamptz`), so that all drivers pass them alike. JSON and uuids travel as text in both
directions (`:input::text::jsonb`, `id::text`): then it makes no difference what codecs a connection has for them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from queuert.sql.statement import Text, load_statements

SEPARATOR = "\x1e"
"""Between JSON texts that travel as one: they have no control characters of their own."""


_WORD = re.compile(r"[A-Za-z0-9_-]*")
_PLACEHOLDER = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\$([0-9]+)""")
"""Or what is quoted, to be passed over."""


class PgStatement(msgspec.Struct, frozen=True):
    """SQL and its values. The answer is a list of tuples."""

    text: str
    values: tuple[Any, ...] = ()
    writes: bool = True
    alone: bool = False
    """It cannot run inside a transaction block, like CREATE INDEX CONCURRENTLY or VACUUM."""
    indifferent: bool = False
    """Whatever somebody has set for the session, it does the same: a connection need not be reset for it."""

    def spelled_out(self) -> str:
        """With its values in it, to be sent together with other statements: no values can go along then. Only for
        numbers, and for words that need no quoting whatever the session's settings, like ids."""

        def literal(match: re.Match[str]) -> str:
            if match[1] is None:
                return match[0]
            value = self.values[int(match[1]) - 1]
            if not isinstance(value, int | str) or _WORD.fullmatch(str(value)) is None:
                raise ValueError(f"{value!r} cannot be spelled out in a statement")
            return f"'{value}'"

        return _PLACEHOLDER.sub(literal, self.text)


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


# A colon and a name, but not the type after `::`, nor an upper bound as in `list[1:n]`. What is quoted or commented
# out is passed over: the alternatives before the last one are there to be skipped.
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
    """`:name` becomes `$1` and so on, the same name always the same number; answers the names in their order."""
    numbers: dict[str, int] = {}

    def replacement(match: re.Match[str]) -> str:
        name: str | None = match[2]
        return match[0] if name is None else f"${numbers.setdefault(name, len(numbers) + 1)}"

    return _TOKEN.sub(replacement, source), tuple(numbers)
