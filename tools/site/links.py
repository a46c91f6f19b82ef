"""Where each file of the project is on the site, and the links between them.

The pages are plain Markdown that links to files of the repository. On the site, the pages of
`docs/` are at the top, pages from the root are in `project/`, and other files that a page links to
are shown in `files/`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from pathlib import PurePosixPath

ROOT_PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "CODE_OF_CONDUCT.md": "project/code-of-conduct.md",
    "docs/README.md": "index.md",
}
PICTURES = (".svg", ".png")

FENCE = re.compile(r"^ *(`{3,}).*?^ *\1 *$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?P<mark>!?\[(?:[^\[\]]|\[[^\]]*\])*\]\()(?P<target>[^)\s]+)\)")


def place(path: str) -> str:
    """The place of a file of the project on the site."""
    if path in ROOT_PAGES:
        return ROOT_PAGES[path]
    if path.startswith("docs/"):
        page = path.removeprefix("docs/")
        return f"{page.removesuffix('README.md')}index.md" if page.endswith("/README.md") else page
    if path.endswith(PICTURES):
        return f"pictures/{PurePosixPath(path).name}"
    return f"files/{path}.md"


def outside_of_code(text: str, change: Callable[[str], str]) -> str:
    """The text with everything changed but its code blocks."""
    parts: list[str] = []
    end = 0
    for block in FENCE.finditer(text):
        parts += [change(text[end : block.start()]), block.group()]
        end = block.end()
    return "".join([*parts, change(text[end:])])


def is_external(target: str) -> bool:
    return "://" in target or target.startswith(("#", "mailto:"))


def resolved(page: str, target: str) -> tuple[str, str]:
    """The file of the project that a link of a page names, and the anchor with its `#`."""
    path, mark, anchor = target.partition("#")
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), path)), mark + anchor


def targets(page: str, text: str) -> set[str]:
    """The files of the project that a page links to."""
    found: set[str] = set()

    def note(part: str) -> str:
        found.update(
            resolved(page, link["target"])[0] for link in LINK.finditer(part) if not is_external(link["target"])
        )
        return part

    outside_of_code(text, note)
    return found


def moved(page: str, text: str) -> str:
    """The text of a page with its links as they are on the site."""
    here = posixpath.dirname(place(page))

    def change(link: re.Match[str]) -> str:
        if is_external(link["target"]):
            return link.group()
        path, anchor = resolved(page, link["target"])
        return f"{link['mark']}{posixpath.relpath(place(path), here or '.')}{anchor})"

    return outside_of_code(text, lambda part: LINK.sub(change, part))
