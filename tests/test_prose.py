"""Prose is wrapped at 100 columns, and avoids words that make a sentence hard to read.

Prose is the text of Markdown pages, the comments of SQL files, and the comments, docstrings, log
lines and error messages of Python files. Only the paths in `CHECKED` are checked. Add a file or a
folder to the list when its texts are ready.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 100

CHECKED: tuple[str, ...] = (
    "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "docs", "src",
)  # fmt: skip
"""Files and folders, relative to the root. Markdown, Python and SQL files in them are checked."""

AVOIDED = ("whoever", "somebody", "nobody", "mends?", "mended", "comes to", "does not take part", "says nothing")
WORDS = re.compile(rf"\b(?:{'|'.join(AVOIDED)})\b".replace(" ", r"\s+"), re.IGNORECASE)

FENCE = re.compile(r"^ *```")
NOT_WRAPPED = re.compile(r"^ *(\||#|<!--|!\[|\[[^\]]+\]:)")
"""In Markdown, tables, headings, comments, pictures and link targets cannot be wrapped."""
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
    """The lines of a Markdown page that can be wrapped: no code, and nothing generated."""
    text = GENERATED.sub(lambda match: "\n" * match.group().count("\n"), path.read_text("utf-8"))
    is_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if FENCE.match(line):
            is_code = not is_code
        elif not is_code and not NOT_WRAPPED.match(line):
            yield number, line


def has_a_break(line: str) -> bool:
    """False for a line that is one long word: a link, or a span of code."""
    return len(CODE_SPAN.sub("x", line).split()) > 2


def comments(source: str) -> Iterator[tuple[int, str, bool]]:
    """The comments of a Python file: line, text, and whether nothing else is on the line."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string, not token.line[: token.start[1]].strip()


@lru_cache(maxsize=1)
def parsed(source: str) -> list[ast.AST]:
    """All nodes of a Python file."""
    return list(ast.walk(ast.parse(source)))


def strings(source: str) -> Iterator[Text]:
    """All strings of a Python file: docstrings, log lines and error messages."""
    for node in parsed(source):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def docstring_lines(source: str) -> set[int]:
    """The lines of strings that are statements: docstrings of modules, classes, functions and attributes."""
    return {
        line
        for node in parsed(source)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def avoided(path: Path, texts: Iterable[Text]) -> list[str]:
    return [
        f"{name(path)}:{number + text.count(chr(10), 0, found.start())}: {found.group()!r}"
        for number, text in texts
        for found in WORDS.finditer(text)
    ]


def too_long(path: Path, lines: Iterable[Text]) -> list[str]:
    return [
        f"{name(path)}:{number}: {len(line)} columns"
        for number, line in lines
        if len(line) > WIDTH and has_a_break(line)
    ]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_pages_are_wrapped() -> None:
    long = [each for path in files(".md") for each in too_long(path, prose(path))]
    assert not long, f"wrap at {WIDTH} columns:\n" + "\n".join(long)


@pytest.mark.parametrize("suffix", [".md", ".sql"])
def test_words_are_plain(suffix: str) -> None:
    found = [each for path in files(suffix) for each in avoided(path, [(1, path.read_text("utf-8"))])]
    assert not found, "write it plainly:\n" + "\n".join(found)


def test_comments_and_docstrings_are_wrapped_and_their_words_are_plain() -> None:
    long: list[str] = []
    found: list[str] = []
    for path in files(".py"):
        source = path.read_text("utf-8")
        suspects = any("#" in line for line in source.splitlines() if len(line) > WIDTH or WORDS.search(line))
        noted = list(comments(source)) if suspects else []  # reading a file twice takes most of the time
        own_lines = docstring_lines(source) | {line for line, _, alone in noted if alone}
        long += too_long(path, [text for text in enumerate(source.splitlines(), 1) if text[0] in own_lines])
        found += avoided(path, [*strings(source), *((line, text) for line, text, _ in noted)])
    assert not long, f"wrap at {WIDTH} columns:\n" + "\n".join(long)
    assert not found, "write it plainly:\n" + "\n".join(found)


def test_comments_and_strings_are_read_but_names_are_not() -> None:
    source = '"""Nobody."""\n\nwhoever = 1  # somebody\nraise ValueError(f"it says nothing: {whoever}")\n'

    assert [line for line, text in strings(source) if WORDS.search(text)] == [1, 4]
    assert list(comments(source)) == [(3, "# somebody", False)]
    assert docstring_lines(source) == {1}


def test_a_single_long_word_cannot_be_wrapped() -> None:
    assert has_a_break("a line of several words")
    assert not has_a_break("- `one long span of code`")
