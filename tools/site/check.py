"""Checks the built site: every link and anchor leads somewhere, nothing is loaded from elsewhere, no name is missing.

python -m tools.site.check build/site/html
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

from tools.site.surface import surface

LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("source", "src"), ("iframe", "src")}


class Page(HTMLParser):
    """The anchors of a page, and what it links to or loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        relation = dict(attrs).get("rel")
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value is not None:
                is_loaded = (tag, name) in LOADED and relation not in ("canonical", "edit")
                (self.loaded if is_loaded else self.links).append(value)


def is_elsewhere(link: str) -> bool:
    return "://" in link or link.startswith(("mailto:", "data:", "//", "javascript:"))


def findings(folder: Path) -> Iterator[str]:
    pages = {path: Page(path.read_text("utf-8")) for path in sorted(folder.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(folder)
        yield from (
            f"{name} loads {link}" for link in page.loaded if is_elsewhere(link) and not link.startswith("data:")
        )
        for link in [*page.links, *page.loaded]:
            if not is_elsewhere(link):
                yield from (f"{name}: {link} {problem}" for problem in broken(path, link, pages))
    known = {anchor for page in pages.values() for anchor in page.anchors}
    for module, names in surface().items():
        yield from (f"the reference has no {module}.{each}" for each in names if f"{module}.{each}" not in known)


def broken(path: Path, link: str, pages: dict[Path, Page]) -> Iterator[str]:
    file, _, anchor = link.partition("#")
    file = unquote(file.partition("?")[0])
    target = (path.parent / file).resolve() if file else path
    if not target.exists():
        yield "leads nowhere"
    elif anchor and target in pages and unquote(anchor) not in pages[target].anchors:
        yield "names no anchor"


if __name__ == "__main__":
    root = Path(sys.argv[1]).resolve()
    found = list(findings(root))
    size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
    count = len(list(root.rglob("*.html")))
    found.append(f"{count} pages, {size / 1e6:.1f} MB, {len(found)} findings: {root / 'index.html'}")
    sys.stdout.write("\n".join(found) + "\n")
    sys.exit(len(found) > 1)
