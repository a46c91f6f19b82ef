"""The `queuert` command, with its output.

With PostgreSQL it runs as a process. Of each command, one or two tests do that (see
`tests/support/matrix.py`). With SQLite it mostly runs in the process of the test, which is much quicker.
"""

from __future__ import annotations

import asyncio
import fcntl
import io
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import sysconfig
import termios
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from unittest.mock import patch

from tests.behaviour.steps import PATIENCE
from tests.cli.measuring import variables_for_coverage
from tests.support.forking import fork

from queuert.operate.cli import main

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]


def environment(**variables: str) -> dict[str, str]:
    left_out = ("QUEUERT_URL", "NO_COLOR", "COLUMNS", "LINES")
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    return {**kept, "PYTHONPATH": str(ROOT / "src"), "TZ": "Asia/Kolkata", "TERM": "xterm",
            "LOGNAME": "ada",
            **variables_for_coverage(), **variables}  # fmt: skip


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "queuert", *arguments]


def installed(*arguments: str, cwd: Path) -> Ended:
    """Run the command as users type it: the script that pip installs, without PYTHONPATH."""
    variables = {name: value for name, value in environment().items() if name != "PYTHONPATH"}
    script = Path(sysconfig.get_path("scripts")) / "queuert"
    ended = subprocess.run(
        [script, *arguments], cwd=cwd, env=variables, capture_output=True, text=True, timeout=PATIENCE
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def queuert(*arguments: str, **variables: str) -> Ended:
    """Run it: in this process if the test has no event loop, sets no variables and needs no PostgreSQL."""
    if variables or _has_loop() or any(each.startswith("postgresql") for each in arguments):
        return as_process(*arguments, **variables)
    with patch.dict(os.environ, environment(), clear=True):
        time.tzset()
        try:
            return in_process(*arguments)
        finally:
            os.environ.pop("TZ")
            time.tzset()


def _has_loop() -> bool:
    return asyncio._get_running_loop() is not None


def as_process(*arguments: str, **variables: str) -> Ended:
    """Run it with its output in files."""
    with TemporaryFile("w+") as out, TemporaryFile("w+") as err:
        process = fork(
            "queuert", arguments, environment=environment(**variables), stdout=out.fileno(), stderr=err.fileno()
        )
        try:
            code = process.wait(PATIENCE)
        finally:
            process.kill()
        for file in (out, err):
            file.seek(0)
        return Ended(code, out.read(), err.read())


def in_process(*arguments: str) -> Ended:
    """Run it in this process."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main(arguments)
        except SystemExit as ended:
            code = int(ended.code or 0)
    return Ended(code, out.getvalue(), err.getvalue())


class Terminal:
    """Run it in a terminal."""

    def __init__(self, *arguments: str, columns: int = 80, **variables: str) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self._process = fork(
            "queuert", arguments, environment=environment(**variables),
            stdin=theirs, stdout=theirs, stderr=theirs, new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self.text = ""

    def read_until(self, pattern: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not re.search(pattern, self.text):
            assert time.monotonic() < deadline, self.text
            assert self._read(), self.text

    def _read(self) -> bool:
        try:
            part = os.read(self._ours, 4096)
        except OSError:  # the other side is closed
            return False
        self.text += part.decode().replace("\r\n", "\n")
        return bool(part)

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def interrupt(self) -> None:
        """Ctrl-C at a question. `input()` can miss a signal that comes just before it reads: then once more."""
        ended: list[int] = []
        while not ended:
            self.send(signal.SIGINT)
            ended, _, _ = select.select([self._ours], [], [], 20)

    def end(self) -> int:
        """Read the rest, and wait."""
        try:
            while self._read():
                pass
            return self._process.wait(PATIENCE)
        finally:
            self._process.kill()
            self._process.wait()
            os.close(self._ours)


DATE = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?[+-]\d\d:\d\d")
AGE = re.compile(r"\b\d+ (s|min)( \d+ s)?\b")


def still(text: str) -> str:
    """The text with DATE and AGE instead of what is different each time."""
    return AGE.sub("AGE", DATE.sub("DATE", text))
