"""Copies the pages into one folder, as Sphinx reads them.

The Markdown in the repository is plain: it reads well without the site. What only the site needs is
added here: links to where the pages are, the navigation, and drawings inside their pages.

    python -m tools.site.stage build/site/pages
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from tools.site import llms, reference
from tools.site.links import LINK, PICTURES, ROOT_PAGES, is_external, moved, outside_of_code, place, resolved, targets
from tools.site.surface import ROOT

LANGUAGES = {".py": "python", ".sql": "sql", ".toml": "toml", ".cjs": "javascript", ".yaml": "yaml", ".yml": "yaml"}
HEADING = re.compile(r"^## +(.+)$", re.MULTILINE)
PICTURE = re.compile(r"^!\[(?P<text>[^\]]*)\]\((?P<path>[^)]+\.svg)\)$", re.MULTILINE)
STYLE = re.compile(r"<style>.*?</style>\s*", re.DOTALL)


def pages() -> list[str]:
    """All pages, as paths of the project. The README of the project is not one: docs/README.md is the first page."""
    roots = [name for name in ROOT_PAGES if "/" not in name and name != "README.md" and (ROOT / name).exists()]
    return [*roots, *sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md"))]


def sections(page: str, text: str) -> list[tuple[str, list[str]]]:
    """The headings of a page, each with the pages that are linked in lists and tables below it. The part before the
    first one has no heading."""
    found: list[tuple[str, list[str]]] = []
    parts = ["", *HEADING.split(text)]
    for caption, body in zip(parts[::2], parts[1::2], strict=True):
        lines = "\n".join(line for line in body.splitlines() if line.startswith(("- ", "| ", "1. ")))
        linked = [resolved(page, link["target"]) for link in LINK.finditer(lines) if not is_external(link["target"])]
        whole = dict.fromkeys(path for path, anchor in linked if path.endswith(".md") and not anchor)
        found.append((caption, list(whole)))
    return found


def navigation(page: str, text: str) -> str:
    """What an index page links to is what the site's navigation has below it."""
    trees: list[str] = []
    first = place(page) == "index.md"
    for caption, linked in sections(page, text):
        if first and not caption:
            continue  # what is under no heading is there for readers, not for the navigation
        # A folder's index lists its own pages. Its other links are only links.
        folder = place(page).removesuffix("index.md")
        inner = [place(path) for path in linked if first or place(path).startswith(folder)]
        if "api.md" in inner and first:
            inner.insert(inner.index("api.md") + 1, "reference/index.md")
        if inner:
            head = [":hidden:"] + ([f":caption: {caption}"] if first else [])
            trees.append("\n".join(["```{toctree}", *head, "", *(f"/{name}" for name in inner), "```", ""]))
    return "\n".join(trees)


def with_pictures(page: str, text: str) -> str:
    """Our own drawings go into the page itself, so that their colours follow the page's."""

    def drawn(picture: re.Match[str]) -> str:
        path, _ = resolved(page, picture["path"])
        if not path.startswith("docs/pictures/"):
            return picture.group()
        drawing = STYLE.sub("", (ROOT / path).read_text("utf-8")).strip()
        return f'```{{raw}} html\n<div class="drawing">\n{drawing}\n</div>\n```'

    return outside_of_code(text, lambda part: PICTURE.sub(drawn, part))


def shown(path: str) -> str:
    """A page with the text of a file, for links into code."""
    file = ROOT / path
    head = f"---\norphan: true\n---\n\n# {path}\n\n"
    if file.is_dir():
        names = sorted(each.relative_to(ROOT).as_posix() for each in file.rglob("*.py") if each.stat().st_size)
        return head + "".join(f"- [{name}]({file.name}/{name.removeprefix(f'{path}/')}.md)\n" for name in names)
    return f"{head}`````{LANGUAGES.get(file.suffix, 'text')}\n{file.read_text('utf-8').rstrip()}\n`````\n"


def write(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def stage(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    files: set[str] = set()
    for page in pages():
        text = (ROOT / page).read_text("utf-8")
        files |= {path for path in targets(page, text) if not path.endswith(".md")}
        is_index = page.endswith("README.md")
        written = moved(page, with_pictures(page, text)) + ("\n" + navigation(page, text) if is_index else "")
        write(folder, place(page), written)
    files |= {
        inner.relative_to(ROOT).as_posix()
        for path in files
        if (ROOT / path).is_dir()
        for inner in (ROOT / path).rglob("*.py")
        if inner.stat().st_size
    }
    for path in sorted(files):
        if path.endswith(PICTURES):
            (folder / place(path)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, folder / place(path))
        else:
            write(folder, place(path), shown(path))
    for name, text in reference.pages().items():
        write(folder, f"reference/{name}.md", text)
    for name, text in llms.files().items():
        write(folder, f"_extra/{name}", text)


if __name__ == "__main__":
    stage(Path(sys.argv[1]))
