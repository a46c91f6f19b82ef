"""`queuert dashboard`: for this machine only."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import httpx
import pytest
from tests.cli.measuring import variables_for_coverage
from tests.cli.running import in_process

import queuert


@pytest.mark.parametrize("address", ["0.0.0.0:8000", "example.com:80", "127.0.0.1", "127.0.0.1:x", "8000"])
def test_it_listens_on_this_machine_only(address: str) -> None:
    ended = in_process("dashboard", "--url", "sqlite:///nothing.db", "--listen", address)
    assert ended.code == 2


@contextmanager
def serving(url: str, *options: str) -> Generator[tuple[subprocess.Popen[str], str]]:
    """The process, and the address that it has printed."""
    with queuert.connect_sync(url, jobs=[]):
        pass
    command = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "queuert",
            "dashboard",
            "--url",
            url,
            "--listen",
            "127.0.0.1:0",
            "--by",
            "ada",
            *options,
        ],
        env={**os.environ, **variables_for_coverage()},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert command.stdout is not None
        yield command, command.stdout.readline().strip()
    finally:
        command.kill()
        command.communicate()


def test_it_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with serving(url, "--no-token") as (command, page):
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", page)
        assert "ada" in urlopen(page).read().decode()
        with pytest.raises(HTTPError, match="403"):
            urlopen(Request(page, headers={"host": "evil.example"}))
        taken = in_process("dashboard", "--url", url, "--listen", page.removeprefix("http://").rstrip("/"))
        assert taken.code == 2
        assert "cannot listen" in taken.err
        command.send_signal(signal.SIGINT)
        command.communicate(timeout=250)
        assert command.returncode == 0


def test_the_address_that_it_prints_opens_it_and_no_other_does(tmp_path: Path) -> None:
    """Also for a proxy that rewrites the host and tells nothing of itself, and for other users of the machine."""
    with serving(f"sqlite:///{tmp_path}/jobs.db") as (_, printed):
        place, _, token = printed.partition("?token=")
        assert len(token) > 40
        with httpx.Client(base_url=place) as web:
            for path in ("/", "/chains", "/static/dashboard.css", "/events", "/?token=", "/?token=x", "/?token=é"):
                closed = web.get(path)
                assert closed.status_code == 403
                assert "has printed" in closed.text
            assert web.post(f"/change/prune?token={token}").status_code == 403
            assert web.get("/", headers={"cookie": f"queuert-{place}=x"}).status_code == 403

            opened = web.get(f"/chains?token={token}&where=status:failed")
            assert (opened.status_code, opened.headers["location"]) == (303, "/chains?where=status%3Afailed")
            kept = opened.headers["set-cookie"]
            assert kept.endswith("; HttpOnly; SameSite=Lax; Path=/")
            assert web.get("/").status_code == 200
            strange = {"cookie": f'theme={{"a": 1}}; {kept.partition(";")[0]}; ='}
            assert httpx.get(place, headers=strange).status_code == 200
            elsewhere = httpx.get(f"{place}/evil.example/?token={token}")
            assert elsewhere.headers["location"] == "/evil.example/"
            # The token opens nothing that the peer and the host would close.
            assert web.get("/", headers={"host": "evil.example"}).status_code == 403
