"""The documentation names everything that is public, and its links lead somewhere."""

import re
from functools import cache
from pathlib import Path

import queuert
from queuert import testing

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
DOCS = [page for page in PAGES if page.is_relative_to(ROOT / "docs")]
USER_PAGES = [ROOT / "README.md", *(page for page in DOCS if page.parent.name != "design")]
INDEXES = [page for page in DOCS if page.name == "README.md"]

CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
SPAN = re.compile(r"`[^`\n]+`")
OWNERS: dict[str, tuple[object, ...]] = {
    "client": (queuert.Client, queuert.SyncClient),
    "attempt": (queuert.Attempt, queuert.SyncAttempt),
    "worker": (queuert.Worker,),
    "tx": (queuert.Transaction,),
    "testing": (testing,),
}
NAMED = re.compile(rf"(?<![\w.])({'|'.join(OWNERS)})\.([a-z_]+)\b")
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)


@cache
def prose(page: Path) -> str:
    """A page without its code blocks: there, `[a](b)` may be Python, and `# a` a comment."""
    return CODE.sub("", page.read_text("utf-8"))


@cache
def anchors(page: Path) -> set[str]:
    """The anchors that a page's headings get, as code hosts make them."""
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(prose(page)))
    return {heading.replace(" ", "-") for heading in kept}


def links() -> list[tuple[Path, str]]:
    return [(page, link) for page in PAGES for link in LINK.findall(prose(page)) if "://" not in link]


def test_public_names_are_explained_somewhere() -> None:
    spans = [span for page in USER_PAGES for span in SPAN.findall(prose(page))]
    explained = {word for span in spans for word in re.findall(r"\w+", span)}
    missing = set(queuert.__all__) - explained
    assert not missing, f"no page mentions {sorted(missing)}"


def test_names_in_the_text_exist() -> None:
    """Code blocks run in another test. This one is about spans, as `client.start(…)` in a table."""
    found = [
        f"{page.name}: {span}"
        for page in USER_PAGES
        if page.name != "from-queuert-typescript.md"  # it shows the names of the other library
        for span in SPAN.findall(prose(page))
        for owner, name in NAMED.findall(span)
        if not any(hasattr(one, name) for one in OWNERS[owner])
    ]
    assert not found, "\n".join(found)


def wrong(page: Path, link: str) -> str | None:
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.is_relative_to(ROOT):
        return "leads out of the project"
    if not target.exists():
        return "leads nowhere"
    if anchor and anchor not in anchors(target):
        return f"names no heading of {target.name}"
    return None


def test_links_lead_to_files_and_headings() -> None:
    found = [f"{page.name}: {link} {problem}" for page, link in links() if (problem := wrong(page, link))]
    assert not found, "\n".join(found)


def test_every_page_is_listed_in_an_index() -> None:
    """The site's navigation has what docs/README.md, and the README.md of each folder, link to."""
    listed = {(page.parent / link).resolve() for page, link in links() if page in INDEXES}

    missing = set(DOCS) - {ROOT / "docs" / "README.md"} - listed
    assert not missing, f"list them in docs/README.md: {sorted(page.name for page in missing)}"


def test_the_walk_through_the_code_is_short_and_names_files_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    walk = text[text.index("## One job, in ten minutes") : text.index("Two side paths")]
    named = set(re.findall(r"`([\w/]+\.py)`", walk))
    missing = {name for name in named if not (ROOT / "src" / "queuert" / name).is_file()}
    assert not missing, f"there are no such files: {sorted(missing)}"
    assert f"in {len(named)} files" in walk
    assert len(named) <= 20
