"""The pytest plugin: its fixtures, and what it costs when it is not used."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

TESTS = """
import queuert
from queuert import EntryJob


class Note(EntryJob[None], name="note"):
    pass


def test_virtual_time(queuert_url, queuert_clock):
    with queuert.connect_sync(queuert_url, jobs=[Note], clock=queuert_clock) as client:
        queuert_clock.advance(60)
        chain = client.get_chain(client.submit(Note()))
        assert chain.created_at == queuert_clock.now()
        assert not client.list_chains().items[1:], "no other test uses this database"


test_another = test_virtual_time
"""


def test_the_fixtures_work(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    # Installed, it is found by its entry point.
    installed = any(point.value == "queuert_pytest" for point in entry_points(group="pytest11"))
    named = [] if installed else ["-p", "queuert_pytest"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *named, "test_it.py"]
    finished = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "2 passed" in finished.stdout


def test_the_plugin_imports_nothing_of_the_library() -> None:
    code = "import sys, queuert_pytest; sys.exit('queuert' in sys.modules or 'msgspec' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
