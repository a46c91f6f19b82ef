"""Sphinx's settings for the site: `make docs`."""

from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from tools.site.links import place  # noqa: E402
from tools.site.stage import pages  # noqa: E402

SOURCES = {place(page): page for page in pages()}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

project = "queuert"
author = "the queuert authors"
version = release = PROJECT["version"]
copyright = author  # noqa: A001

extensions = ["myst_parser", "sphinx_copybutton"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_extra"]
# Quotes in the text are often quotes of code: they stay as they are written.
smartquotes = False
myst_heading_anchors = 4
myst_enable_extensions = ["fieldlist"]
myst_links_external_new_tab = False
suppress_warnings = ["myst.strikethrough"]

html_theme = "furo"
html_title = f"queuert {release}"
html_static_path = [str(Path(__file__).parent / "static")]
html_css_files = ["drawing.css", "site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_show_sphinx = False
html_last_updated_fmt = None
# No date, and nothing of the machine: two builds of the same files are the same.
html_theme_options: dict[str, object] = {
    "light_css_variables": {"color-brand-primary": "#1d5fbf", "color-brand-content": "#1d5fbf"},
    "dark_css_variables": {"color-brand-primary": "#7fb2ff", "color-brand-content": "#7fb2ff"},
}
# Edit links need the address of a repository. The project names none, so they are off until one is given.
REPOSITORY = os.environ.get("QUEUERT_DOCS_REPOSITORY", "").rstrip("/")
BRANCH = os.environ.get("QUEUERT_DOCS_BRANCH", "main")

pygments_style = "a11y-light"
pygments_dark_style = "a11y-dark"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
toc_object_entries_show_parents = "hide"
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True


def add_edit_link(_app: object, page: str, _template: str, context: dict[str, object], _doctree: object) -> None:
    """Pages that were written have a link to their file. Those that were generated have none."""
    source = SOURCES.get(f"{page}.md")
    if REPOSITORY and source:
        context["theme_source_edit_link"] = f"{REPOSITORY}/edit/{BRANCH}/{source}"
    else:
        context["page_source_suffix"] = None


def setup(app: Sphinx) -> None:
    app.connect("html-page-context", add_edit_link)
