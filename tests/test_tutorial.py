"""Each step of the tutorial runs, and its page shows exactly the code of its directory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.postgres import server

ROOT = Path(__file__).resolve().parent.parent
STEPS = ROOT / "examples" / "tutorial"
PAGES = ROOT / "docs" / "tutorial"
BLOCK = re.compile(r"^```(?:python|py|dockerfile|ini)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run(step: int, cwd: Path, *command: str, **environment: str) -> str:
    finished = subprocess.run(
        [sys.executable, "-W", "error", *command],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(STEPS / f"step_{step}"), **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


@pytest.mark.parametrize(
    ("step", "output"),
    [
        (1, "Thank you, Ada!\n"),
        (2, "Thank you, Ada! payment-1 of 950 cents\n"),
        (3, "2850 cents today\n"),
    ],
)
def test_a_step_on_sqlite(step: int, output: str, tmp_path: Path) -> None:
    assert run(step, tmp_path, "-m", "shop") == output


@pytest.mark.parametrize("step", [4, 5])
def test_a_step_on_postgresql_with_two_processes(step: int, tmp_path: Path) -> None:
    with server().fresh() as url:
        day = run(step, tmp_path, "-m", "shop", DATABASE_URL=url).strip()
        run(step, tmp_path, "-m", "queuert", "check", "--app", "shop:worker", "--against", url, DATABASE_URL=url)
        worker = ("-m", "queuert", "worker", "shop:worker", "--processes", "2", "--until-empty")
        run(step, tmp_path, *worker, DATABASE_URL=url)
        shown = run(step, tmp_path, "-m", "queuert", "show", day, "--url", url)
    assert re.search(r"^output +2850$", shown, re.MULTILINE), shown


@pytest.mark.parametrize("step", range(1, 6))
def test_the_page_of_a_step_shows_its_code(step: int) -> None:
    files = [path.read_text("utf-8") for path in (STEPS / f"step_{step}").iterdir() if path.is_file()]
    blocks = BLOCK.findall((PAGES / f"step-{step}.md").read_text("utf-8"))
    assert blocks
    assert [block for block in blocks if not any(block in file for file in files)] == []
