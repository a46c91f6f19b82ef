"""The documentation as plain text, for assistants: a list of its pages, and all of it in one file.

`llms.txt` follows the proposal of that name: a title, a summary, and lists of links. `llms-full.txt`
has the text of the guides and the signatures and docstrings of all public names.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from tools.site.links import LINK, is_external, place, resolved
from tools.site.reference import is_ours, members
from tools.site.signatures import signatures
from tools.site.surface import ROOT, surface

INDEX = "docs/README.md"
SUMMARY = (
    "Durable, typed job chains for Python that commit together with your own database transaction. "
    "Jobs live in PostgreSQL or SQLite. Workers run in your own processes. There is no server to run."
)
HEADING = re.compile(r"^## +(.+)$", re.MULTILINE)
LEFT_OUT = ("Design", "Project")
"""Sections whose pages are not about using the library."""


def listed() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The sections of the first page that list pages: each page with the line that lists it."""
    parts = HEADING.split((ROOT / INDEX).read_text("utf-8"))
    for title, text in zip(parts[1::2], parts[2::2], strict=True):
        lines = re.sub(r"\n  +", " ", text).splitlines()
        items = [(line, link) for line in lines if line.startswith("- ") and (link := LINK.search(line))]
        pages = [(resolved(INDEX, link["target"])[0], line) for line, link in items if not is_external(link["target"])]
        if pages:
            yield title, pages


def short() -> str:
    parts = [f"# queuert\n\n> {SUMMARY}\n\n[All of it in one file](llms-full.txt)\n"]
    for title, pages in listed():
        parts.append(f"## {title}\n")
        for path, line in pages:
            html = place(path).removesuffix(".md") + ".html"
            parts.append(LINK.sub(rf"\g<mark>{html})", line))
        parts.append("")
    return "\n".join(parts)


def full() -> str:
    parts = [f"# queuert\n\n{SUMMARY}\n"]
    for title, pages in listed():
        if title not in LEFT_OUT:
            parts += [f"<!-- {path} -->\n\n{(ROOT / path).read_text('utf-8')}" for path, _ in pages]
    return "\n".join([*parts, "# API: every public name\n", *api()])


def api() -> Iterator[str]:
    for module, names in surface().items():
        yield f"## `{module}`\n"
        for name in names:
            yield from described(name, getattr(import_module(module), name))


def described(name: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value):
        yield f"class {name}\n{indented(inspect.getdoc(value))}\n"
        for each, member in members(value) if is_ours(value) else ():
            function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            if inspect.isfunction(function):
                yield from called(f"{name}.{each}", function)
            elif isinstance(member, property):
                yield f"{name}.{each}\n{indented(inspect.getdoc(member))}\n"
    elif inspect.isroutine(value):
        yield from called(name, value)
    else:
        yield f"{name} = {value!r}\n"


def called(name: str, function: Any) -> Iterator[str]:
    heads = "\n".join(f"{name}{signature}" for signature in signatures(function))
    yield f"{heads}\n{indented(inspect.getdoc(function))}\n"


def indented(text: str | None) -> str:
    return "\n".join(f"    {line}" if line else "" for line in (text or "").splitlines())


def files() -> dict[str, str]:
    return {"llms.txt": short(), "llms-full.txt": full()}
