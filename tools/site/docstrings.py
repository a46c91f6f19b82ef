"""Docstrings as Markdown, with links to the public names in them."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass, field
from functools import cache

from tools.site.links import outside_of_code
from tools.site.surface import surface

HEADINGS = {"Args:", "Attributes:", "Raises:"}
ITEM = re.compile(r"^    (\*{0,2}\w+): +(.*)$")
CODE_SPAN = re.compile(r"(?<!`)`([A-Za-z_][\w.]*)`(?!`)")
DRAWN = re.compile("[├└│…]")
"""Trees are drawn with signs that are not Python, and what is left out is one."""


@dataclass
class Documentation:
    """A docstring: its text, and the items of its sections."""

    text: str = ""
    sections: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])

    def items(self, heading: str) -> dict[str, str]:
        return self.sections.get(heading, {})


def read(documentation: str | None) -> Documentation:
    found = Documentation()
    texts: list[str] = []
    items: dict[str, str] | None = None
    name = ""
    for line in (documentation or "").splitlines():
        if line in HEADINGS:
            items = found.sections.setdefault(line, {})
        elif items is not None and (item := ITEM.match(line)):
            name = item[1]
            items[name] = item[2]
        elif items is not None and name and (line.startswith("     ") or not line):
            items[name] += f" {line.strip()}" if line else ""
        else:
            items = None
            texts.append(line)
    found.text = "\n".join(texts).strip("\n")
    return found


@cache
def public_names() -> dict[str, str]:
    """The full name of each public name, by how a docstring may write it. Names of `queuert` win."""
    found: dict[str, str] = {}
    for module, names in surface().items():
        for name in names:
            found[f"{module}.{name}"] = f"{module}.{name}"
            found.setdefault(name, f"{module}.{name}")
    return found


def linked(text: str) -> str:
    """Code spans that are a public name become links to it."""

    def link(span: re.Match[str]) -> str:
        full = public_names().get(span[1])
        return f"{{py:obj}}`{span[1]} <{full}>`" if full else span.group()

    return outside_of_code(text, lambda part: CODE_SPAN.sub(link, part))


def prose(text: str) -> str:
    """The text of a docstring as Markdown: what is indented is a block of code."""
    lines: list[str] = []
    block: list[str] = []
    is_item = False

    def end_block() -> None:
        while block and not block[-1].strip():
            block.pop()
        if block:
            code = textwrap.dedent("\n".join(block))
            language = "text" if DRAWN.search(code) else "python"
            lines.extend(["", f"```{language}", *code.splitlines(), "```", ""])
            block.clear()

    for line in text.splitlines():
        if (line.startswith("    ") and not is_item) or (block and not line):
            block.append(line)
            continue
        end_block()
        is_item = line.startswith("- ") or (is_item and line.startswith("  "))
        lines.append(line)
    end_block()
    return linked("\n".join(lines))
