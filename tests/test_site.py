"""What `make docs` generates is complete: the API reference, the navigation, and the texts for assistants.

These tests need no Sphinx. `make docs` itself checks the site that it has built: tools/site/check.py.
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path

from tools.site import llms, pictures, reference, stage
from tools.site.check import findings
from tools.site.links import moved, place
from tools.site.surface import ROOT, surface

PUBLIC = [f"{module}.{name}" for module, names in surface().items() for name in names]
DIRECTIVE = re.compile(r"^`{6,7}\{py:(\w+)\} (\w+)(.*)$", re.MULTILINE)


def test_the_reference_has_every_public_name_and_every_keyword() -> None:
    pages = reference.pages()
    for module, names in surface().items():
        text = "".join(pages[group.page] for group in reference.groups(module))
        described = {name for kind, name, _ in DIRECTIVE.findall(text) if kind not in ("method", "attribute")}
        assert set(names) <= described, module

    shown = {
        name: signature for kind, name, signature in DIRECTIVE.findall(pages["queuert-client"]) if kind == "method"
    }
    methods = inspect.getmembers(import_module("queuert").Client, inspect.isfunction)
    assert {name for name, _ in methods if not name.startswith("_")} <= shown.keys()
    assert "dedup: queuert.Dedup | " in shown["start"]  # from Unpack[StartOptions], with a type that links


def test_the_navigation_has_every_page() -> None:
    trees = [
        stage.navigation(page, (ROOT / page).read_text("utf-8"))
        for page in stage.pages()
        if page.startswith("docs/") and page.endswith("README.md")
    ]
    listed = set(re.findall(r"^/(.+\.md)$", "\n".join(trees), re.MULTILINE))
    assert {place(page) for page in stage.pages()} - {"index.md"} <= listed


def test_links_lead_to_the_same_pages_on_the_site() -> None:
    text = (
        "[a](../CHANGELOG.md#b) ![c](../bench/results/latest.svg) [d](#e) `x`\n```\n[a](b.md)\n```\n[f](design/bulk.md)"
    )
    assert moved("docs/jobs.md", text) == (
        "[a](project/changelog.md#b) ![c](pictures/latest.svg) [d](#e) `x`\n```\n[a](b.md)\n```\n[f](design/bulk.md)"
    )
    assert moved("docs/design/bulk.md", "[a](../client.md#b)") == "[a](../client.md#b)"
    assert moved("CONTRIBUTING.md", "[a](docs/client.md)") == "[a](../client.md)"


def test_the_texts_for_assistants_have_every_page_and_every_name() -> None:
    files = llms.files()
    pages = [path for _, listed in llms.listed() for path, _ in listed]
    assert all(place(page).removesuffix(".md") + ".html" in files["llms.txt"] for page in pages)
    missing = [name for name in PUBLIC if not re.search(rf"\b{name.rpartition('.')[2]}\b", files["llms-full.txt"])]
    assert missing == []


def test_a_broken_site_is_found_out(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(
        '<a href="gone.html"></a><a href="#no"></a><h1 id="yes"></h1><a href="#yes"></a>'
        '<script src="https://example.org/x.js"></script><a href="https://example.org">fine</a>'
    )
    found = [finding for finding in findings(tmp_path) if not finding.startswith("the reference has no")]
    assert found == [
        "index.html loads https://example.org/x.js",
        "index.html: gone.html leads nowhere",
        "index.html: #no names no anchor",
    ]


def test_the_drawings_are_up_to_date_and_described() -> None:
    for path, text in pictures.files().items():
        assert path.read_text("utf-8") == text, "run python -m tools.site.pictures"
        assert {"title", "desc"} <= set(re.findall(r"<(\w+) id", text))
