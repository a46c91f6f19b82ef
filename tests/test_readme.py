"""Every Python example in the README and the docs runs as it stands, in an empty directory.

Those that need PostgreSQL find a database of their own in QUEUERT_DOCS_POSTGRES_URL, those that need Redis a server
in QUEUERT_DOCS_REDIS_URL.
"""

import ast
import os
import re
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.forking import fork
from tests.support.postgres import server, template
from tests.support.redis import redis_url

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]

WIDTH_OF_CODE = 97
"""Longer lines must be scrolled on code hosts."""

POSTGRES = "QUEUERT_DOCS_POSTGRES_URL"
REDIS = "QUEUERT_DOCS_REDIS_URL"

FENCED = re.compile(
    r"^(?:<!-- *no-run: *(?P<reason>.+?) *-->\n)?```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Example:
    place: str
    code: str
    no_run: str | None


def examples_in(text: str, page: str) -> list[Example]:
    examples: list[Example] = []
    for block in FENCED.finditer(text):
        line_of_the_fence = text.count("\n", 0, block.start("code"))
        examples.append(Example(f"{page}:{line_of_the_fence}", block["code"], block["reason"]))
    return examples


def runnable(code: str) -> str:
    """Call `async def main()` where the example defines it and leaves the call to the reader."""
    tree = ast.parse(code)
    defines_main = any(isinstance(node, ast.AsyncFunctionDef) and node.name == "main" for node in tree.body)
    calls_main = any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "main"
        for node in ast.walk(tree)
    )
    if not defines_main or calls_main:
        return code
    return f"{code}\nimport asyncio\n\nasyncio.run(main())\n"


EXAMPLES = [
    example for page in PAGES for example in examples_in(page.read_text("utf-8"), page.relative_to(ROOT).as_posix())
]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.place)
def test_example_runs(example: Example, tmp_path: Path) -> None:
    if example.no_run is not None:
        pytest.skip(example.no_run)
    script = tmp_path / "example.py"
    script.write_text(runnable(example.code), "utf-8")

    # The programs of the README are what a reader tries first, and perhaps twice.
    times = 2 if example.place.startswith("README.md:") else 1
    with server().fresh(template=template()) if POSTGRES in example.code else nullcontext("") as url:
        for time in range(times):
            with (tmp_path / "output").open("w+") as output:
                process = fork(
                    script,
                    environment={**os.environ, POSTGRES: url, REDIS: redis_url() if REDIS in example.code else ""},
                    stdout=output.fileno(),
                    stderr=output.fileno(),
                    directory=tmp_path,
                )
                code = process.wait(250)
                output.seek(0)
                assert code == 0, f"{example.place}, run {time}\n{output.read()}"


def test_readme_shows_an_example_that_is_run() -> None:
    assert any(e.place.startswith("README.md:") and e.no_run is None for e in EXAMPLES)


def test_readme_fits_on_three_screens() -> None:
    """With these counts it is 2,656 px high, in a column of 830 px with letters of 16 px: three screens of 900 px."""
    text = (ROOT / "README.md").read_text("utf-8")
    code = "".join(re.findall(r"^```.*?^```$", text, re.MULTILINE | re.DOTALL))
    pictures = re.findall(r'<img src="([^"]+)" width="(\d+)"', text)

    assert len(text.splitlines()) <= 120
    assert len(text.split()) <= 720
    assert len(code.splitlines()) <= 45
    assert [line for line in code.splitlines() if len(line) > WIDTH_OF_CODE] == []
    assert len(re.findall(r"^\|", text, re.MULTILINE)) <= 6
    assert [(int(width) <= 440, (ROOT / path).exists()) for path, width in pictures] == [(True, True)]
    assert "![" not in text, "a picture without a width is as wide as the page"


def test_examples_are_found_with_their_line_and_their_reason() -> None:
    page = (
        "# A\n\n```python\na = 1\n```\n<!-- no-run: needs a server -->\n```python\nb = 2\n```\n```\nnot Python\n```\n"
    )

    assert examples_in(page, "a.md") == [
        Example("a.md:3", "a = 1\n", None),
        Example("a.md:7", "b = 2\n", "needs a server"),
    ]


def test_main_is_called_only_where_the_example_does_not() -> None:
    defined = "async def main(): ...\n"
    called = f"{defined}import asyncio\nasyncio.run(main())\n"

    assert runnable(defined).endswith("asyncio.run(main())\n")
    assert runnable(called) == called
    assert runnable("x = 1\n") == "x = 1\n"
