"""The documentation names everything that is public, and its links lead somewhere."""

import re
from pathlib import Path

import pytest

import queuert

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
DOCS = [page for page in PAGES if page.is_relative_to(ROOT / "docs")]
USER_PAGES = [ROOT / "README.md", *(page for page in DOCS if page.parent.name != "design")]
INDEXES = [page for page in DOCS if page.name == "README.md"]

CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)


def prose(page: Path) -> str:
    """A page without its code blocks: there, `[a](b)` may be Python, and `# a` a comment."""
    return CODE.sub("", page.read_text("utf-8"))


def anchors(page: Path) -> set[str]:
    """The anchors that a page's headings get, as code hosts make them."""
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(prose(page)))
    return {heading.replace(" ", "-") for heading in kept}


def links() -> list[tuple[Path, str]]:
    return [(page, link) for page in PAGES for link in LINK.findall(prose(page)) if "://" not in link]


@pytest.mark.parametrize("name", queuert.__all__)
def test_public_name_is_explained_somewhere(name: str) -> None:
    pattern = re.compile(rf"`[^`\n]*\b{name}\b[^`\n]*`")
    assert any(pattern.search(prose(page)) for page in USER_PAGES), f"no page mentions `{name}`"


@pytest.mark.parametrize(("page", "link"), links(), ids=lambda value: value.name if isinstance(value, Path) else value)
def test_link_leads_to_a_file_and_a_heading(page: Path, link: str) -> None:
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page

    assert target.is_relative_to(ROOT), f"{page.name}: {link} leads out of the project"
    assert target.exists(), f"{page.name}: {link} leads nowhere"
    if anchor:
        assert anchor in anchors(target), f"{page.name}: {link} names no heading of {target.name}"


def test_every_page_is_listed_in_an_index() -> None:
    """The site's navigation has what docs/README.md, and the README.md of each folder, link to."""
    listed = {(page.parent / link).resolve() for page, link in links() if page in INDEXES}

    missing = set(DOCS) - {ROOT / "docs" / "README.md"} - listed
    assert not missing, f"list them in docs/README.md: {sorted(page.name for page in missing)}"
