"""Each step of the tutorial runs, and its page shows exactly the code of its directory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.postgres import server

import queuert

ROOT = Path(__file__).resolve().parent.parent
STEPS = ROOT / "examples" / "tutorial"
PAGES = ROOT / "docs" / "tutorial"
PATIENCE = 250
"""Seconds. Programs start here that import everything, several at once: on a busy machine, that takes minutes."""
BLOCK = re.compile(r"^```(?:python|py|dockerfile|ini)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def started(step: int, cwd: Path, *command: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", *command],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(STEPS / f"step_{step}"), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> str:
    with process:
        try:
            output, errors = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert process.returncode == 0, output + errors
    return output


def run(step: int, cwd: Path, *command: str, **environment: str) -> str:
    return ended(started(step, cwd, *command, **environment))


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


@pytest.mark.timeout(4 * PATIENCE)
@pytest.mark.parametrize("step", [4, 5])
def test_a_step_on_postgresql_with_two_processes(step: int, tmp_path: Path) -> None:
    with server().fresh() as url:
        day = run(step, tmp_path, "-m", "shop", DATABASE_URL=url).strip()
        run(step, tmp_path, "-m", "queuert", "check", "--app", "shop:worker", "--against", url, DATABASE_URL=url)
        worker = started(step, tmp_path, "-m", "queuert", "worker", "shop:worker", "--processes", "2", DATABASE_URL=url)
        shown = ""
        try:
            # The first call of each process to the bank fails, so a charge is tried again a little later.
            with queuert.connect_sync(url, jobs=[]) as client:
                client.wait(day, timeout=PATIENCE)
            shown = run(step, tmp_path, "-m", "queuert", "show", day, "--url", url)
        finally:
            worker.terminate()
            ended(worker)
    assert re.search(r"^status +completed$", shown, re.MULTILINE), shown
    assert re.search(r"^output +2850$", shown, re.MULTILINE), shown


@pytest.mark.parametrize("step", range(1, 6))
def test_the_page_of_a_step_shows_its_code(step: int) -> None:
    files = [path.read_text("utf-8") for path in (STEPS / f"step_{step}").iterdir() if path.is_file()]
    blocks = BLOCK.findall((PAGES / f"step-{step}.md").read_text("utf-8"))
    assert blocks
    assert [block for block in blocks if not any(block in file for file in files)] == []
