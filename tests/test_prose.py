"""Prose is wrapped at 100 columns, and avoids words that make readers stop.

Only the paths in `CHECKED` are checked. Add a file or a folder to the list when its texts are ready.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 100

CHECKED: tuple[str, ...] = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs")
"""Files and folders, relative to the root. Markdown and Python files in them are checked."""

AVOIDED = ("whoever", "somebody", "nobody", "mends?", "mended", "comes to", "does not take part", "says nothing")
WORDS = re.compile(rf"\b(?:{'|'.join(AVOIDED)})\b".replace(" ", r"\s+"), re.IGNORECASE)

FENCE = re.compile(r"^ *```")
NOT_WRAPPED = re.compile(r"^ *(\||#|<!--|!\[|\[[^\]]+\]:)")
"""Tables, headings, comments, pictures and link targets cannot be wrapped."""
GENERATED = re.compile(r"<!-- benchmark: begin -->.*?<!-- benchmark: end -->", re.DOTALL)
CODE_SPAN = re.compile(r"`[^`]*`")

Text = tuple[int, str]
"""A text, and the line on which it begins."""


def files(suffix: str) -> list[Path]:
    found: list[Path] = []
    for name in CHECKED:
        path = ROOT / name
        found += [path] if path.is_file() else sorted(path.rglob(f"*{suffix}"))
    return [path for path in found if path.suffix == suffix]


def prose(path: Path) -> Iterator[Text]:
    """The lines of a Markdown page, without code and without what is generated."""
    text = GENERATED.sub(lambda match: "\n" * match.group().count("\n"), path.read_text("utf-8"))
    is_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if FENCE.match(line):
            is_code = not is_code
        elif not is_code:
            yield number, line


def can_be_wrapped(line: str) -> bool:
    """False for tables, headings and the like, and for one long word (a link, a code span)."""
    words = CODE_SPAN.sub("x", line).split()
    return not NOT_WRAPPED.match(line) and len(words) > 2


def texts(source: str) -> Iterator[Text]:
    """The comments and the strings of a Python file: docstrings, log lines and error messages."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def avoided(path: Path, texts: Iterable[Text]) -> list[str]:
    return [
        f"{path.relative_to(ROOT).as_posix()}:{number + text.count(chr(10), 0, found.start())}: {found.group()!r}"
        for number, text in texts
        for found in WORDS.finditer(text)
    ]


@pytest.mark.parametrize("path", files(".md"), ids=lambda path: path.relative_to(ROOT).as_posix())
class TestPages:
    def test_prose_is_wrapped(self, path: Path) -> None:
        place = path.relative_to(ROOT).as_posix()
        long = [
            f"{place}:{number}: {len(line)} columns"
            for number, line in prose(path)
            if len(line) > WIDTH and can_be_wrapped(line)
        ]

        assert not long, f"wrap at {WIDTH} columns:\n" + "\n".join(long)

    def test_words_are_plain(self, path: Path) -> None:
        found = avoided(path, [(1, path.read_text("utf-8"))])

        assert not found, "write it plainly:\n" + "\n".join(found)


@pytest.mark.parametrize("path", files(".py"), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_texts_in_code_are_plain(path: Path) -> None:
    found = avoided(path, texts(path.read_text("utf-8")))

    assert not found, "write it plainly:\n" + "\n".join(found)


def test_comments_and_strings_of_code_are_read_but_names_are_not() -> None:
    source = '"""Nobody."""\n\nwhoever = 1  # somebody\nraise ValueError(f"it says nothing: {whoever}")\n'

    assert [number for number, text in texts(source) if WORDS.search(text)] == [3, 1, 4]


def test_only_prose_must_be_wrapped() -> None:
    assert can_be_wrapped("a line of several words")
    assert not can_be_wrapped("| a | table |")
    assert not can_be_wrapped("- `one long span of code`")
