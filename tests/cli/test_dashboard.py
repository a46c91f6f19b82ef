"""`queuert dashboard`: for this machine only."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from tests.cli.measuring import variables_for_coverage
from tests.cli.running import in_process

import queuert


@pytest.mark.parametrize("address", ["0.0.0.0:8000", "example.com:80", "127.0.0.1", "127.0.0.1:x", "8000"])
def test_it_listens_on_this_machine_only(address: str) -> None:
    ended = in_process("dashboard", "--url", "sqlite:///nothing.db", "--listen", address)
    assert ended.code == 2


def test_it_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with queuert.connect_sync(url, jobs=[]):
        pass
    command = subprocess.Popen(
        [sys.executable, "-m", "queuert", "dashboard", "--url", url, "--listen", "127.0.0.1:0", "--by", "ada"],
        env={**os.environ, **variables_for_coverage()},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert command.stdout is not None
        page = command.stdout.readline().strip()
        assert "ada" in urlopen(page).read().decode()
        with pytest.raises(HTTPError, match="403"):
            urlopen(Request(page, headers={"host": "evil.example"}))
        taken = in_process("dashboard", "--url", url, "--listen", page.removeprefix("http://").rstrip("/"))
        assert taken.code == 2
        assert "cannot listen" in taken.err
        command.send_signal(signal.SIGINT)
        command.communicate(timeout=60)
        assert command.returncode == 0
    finally:
        command.kill()
        command.communicate()
