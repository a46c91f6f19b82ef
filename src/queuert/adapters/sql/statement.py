"""Statements: SQL text with parameters, the command that programs of SQL adapters yield.

The text is in `.sql` files, one for each operation. A line `-- read: name` or `-- write: name`
begins a statement, called `file.name`; it ends where the next begins. Text above the first
statement is a comment for readers. Words in braces, such as `{prefix}`, are replaced when the files
are loaded, never when a statement runs: values are always parameters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

import msgspec

from queuert.errors import InvalidArgument

_SECTION = re.compile(r"^-- (read|write): (\w+)$", re.MULTILINE)
_COMMENT_LINE = re.compile(r"^\s*--.*\n?", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_PREFIX = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")


class Statement(msgspec.Struct, frozen=True):
    """SQL and its parameters.

    `writes` decides which connection may run it outside a transaction.
    """

    text: str
    parameters: Mapping[str, Any] = {}
    writes: bool = True


class Text(msgspec.Struct, frozen=True):
    """A statement without its parameters: calling it with them makes one that can be yielded."""

    name: str
    text: str
    writes: bool

    def __call__(self, **parameters: Any) -> Statement:
        return Statement(self.text, parameters, self.writes)


def load_statements(package: str, replacements: Mapping[str, str]) -> dict[str, Text]:
    """Every statement of the `.sql` files in a package, by name."""
    found: dict[str, Text] = {}
    for stem, source in sql_files(package):
        for text in split_statements(stem, substitute(source, replacements, f"{stem}.sql")):
            found[text.name] = text
    return found


def sql_files(package: str) -> Iterator[tuple[str, str]]:
    """Name (without suffix) and content of the `.sql` files in a package, by name."""
    for entry in sorted(files(package).iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".sql"):
            yield entry.name.removesuffix(".sql"), entry.read_text("utf-8")


def split_statements(stem: str, source: str) -> Iterator[Text]:
    """The statements of one file."""
    heads = list(_SECTION.finditer(source))
    for head, following in zip(heads, [*heads[1:], None], strict=True):
        body = source[head.end() : following.start() if following else len(source)]
        text = strip_comments(body).strip().removesuffix(";")
        yield Text(f"{stem}.{head[2]}", text, head[1] == "write")


def strip_comments(source: str) -> str:
    """Leave out the lines that are comments as a whole: the database need not read them each
    time.
    """
    return _COMMENT_LINE.sub("", source)


def substitute(source: str, replacements: Mapping[str, str], where: str) -> str:
    """Replace the words in braces. An undefined word is an error in the file."""

    def replacement(match: re.Match[str]) -> str:
        if match[1] not in replacements:
            raise LookupError(f"{where} has {match[0]}, which is not defined")
        return replacements[match[1]]

    return _PLACEHOLDER.sub(replacement, source)


def check_prefix(prefix: object) -> str:
    """A table prefix becomes part of the SQL, so nothing but letters, digits and underscores may be
    in it.
    """
    if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
        raise InvalidArgument(
            f"table_prefix must be 1 to 40 letters, digits and underscores, not beginning with a digit, got {prefix!r}"
        )
    return prefix
