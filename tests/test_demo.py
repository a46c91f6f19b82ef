"""`make demo` runs the order pipeline to its end, and its summary is true."""

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.request import HTTPCookieProcessor, build_opener

import pytest

ROOT = Path(__file__).resolve().parent.parent
DEMO = ROOT / "examples" / "demo.py"


def run_demo(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", str(DEMO), *arguments],
        env={**os.environ, "TMPDIR": str(directory), "COLUMNS": "100", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=250,
        check=False,
    )


def table_rows(text: str) -> dict[str, list[str]]:
    """The rows of the summary by their first column."""
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in text.splitlines() if line[:1] == "│"]
    return {row[0]: row[1:] for row in rows}


@pytest.fixture
def directory() -> Iterator[Path]:
    """Where the demo puts its files. If we are root, another user runs the server: he must be able to get there."""
    with tempfile.TemporaryDirectory(prefix="queuert-demo-") as path:
        Path(path).chmod(0o755)
        yield Path(path)


@pytest.mark.parametrize("database", ["SQLite", "PostgreSQL"])
def test_the_pipeline_ends_and_the_summary_counts_everything(directory: Path, database: str) -> None:
    finished = run_demo(directory, "--orders", "50", *(["--postgres"] if database == "PostgreSQL" else []))

    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert finished.stderr == ""
    assert database in finished.stdout
    # 50 orders in baskets of 5. Two are large and have one job more; for every tenth the gateway fails once.
    # The approval has no attempt: no worker ran it.
    assert table_rows(finished.stdout) == {
        "reserve-stock": ["completed", "50", "152", "155", "5"],
        "send-invoice": ["completed", "10", "10", "10", "0"],
        "ask-for-review": ["completed", "10", "10", "10", "0"],
    }
    said = re.sub(r"\s+", " ", finished.stdout)
    assert "rolled back: 0 orders stored, 0 chains started" in said
    assert re.search(r"172 jobs in 70 chains took [0-9.]+ s", said)
    assert "55 calls to the payment service, 5 failed and were repeated" in said
    assert "50 cards charged, 50 payments recorded" in said
    assert "10 invoices" in said
    assert "2 large orders approved by hand" in said
    assert "10 follow-ups" in said
    if database == "PostgreSQL":
        assert said.endswith("The server has ended, and its data is deleted. `make demo` leaves a file to look at. ")
        assert list(directory.iterdir()) == []
        return
    *_, why, ls, status = (line.strip() for line in finished.stdout.splitlines())
    assert "it is not due before" in output_of(why)
    assert output_of(ls).count(" completed ") == 49
    assert re.search(r"^ask-for-review +0 +1 +0 +0$", output_of(status), re.MULTILINE)


def output_of(line: str) -> str:
    """Of a command that the demo shows."""
    words = [sys.executable, *line[line.index("-m queuert") :].split()] if "-m queuert" in line else line.split()
    return subprocess.run(words, capture_output=True, text=True, timeout=250, check=True, cwd=ROOT).stdout


def test_a_number_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    finished = run_demo(tmp_path, "--orders", "0")

    assert finished.returncode == 2
    assert "--orders must be from 1 to 5000" in finished.stderr


def heed_interrupts() -> None:
    """A shell that runs the tests in the background lets its children ignore them."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_with_the_dashboard_it_goes_on_until_it_is_interrupted(directory: Path) -> None:
    """The page shows the orders, and ends with them."""
    demo = subprocess.Popen(
        [sys.executable, "-W", "error", str(DEMO), "--dashboard"],
        env={**os.environ, "TMPDIR": str(directory), "COLUMNS": "100", "PYTHONIOENCODING": "utf-8"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=heed_interrupts,
    )
    try:
        assert demo.stdout is not None
        told = demo.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/\S*", told)
        assert found, told
        page = build_opener(HTTPCookieProcessor()).open(found[0]).read().decode()
        assert "shop" in page
        demo.send_signal(signal.SIGINT)
        out, errors = demo.communicate(timeout=250)
        assert (demo.returncode, out, errors) == (130, "", "")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(demo.pid, signal.SIGKILL)  # and the page, which has the same pipe
        demo.communicate()
