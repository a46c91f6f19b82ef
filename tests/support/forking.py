"""Processes that need not import the package first.

A Python process needs a second of CPU to import the package and its drivers, and the tests start
hundreds of them. One process per test session imports everything; each process of a test is a fork of
it, with arguments, environment, working directory and files of its own. It then does what `python -m`
does, but for one thing: at its end, it frees what the program has made, and not all that was imported.
That would take longer than all the rest.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PRELOADED = (
    "queuert",
    "queuert.operate.cli",
    "queuert.wiring",
    "queuert.wiring.embedded",
    "queuert.wiring.postgres",
    "asyncpg",
    "psycopg",
    "psycopg_pool",
    "coverage",
    "tests.behaviour.watching",
)


class Forked:
    """A process that runs a module. The one that forked it waits for it, and says how it ended."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.pid = int(self._next())
        self.returncode: int | None = None

    def _next(self) -> str:
        line = bytearray()
        while not line.endswith(b"\n"):
            part = self._connection.recv(1)
            if not part:
                raise EOFError("the process that forks has ended")
            line += part
        return line.decode()

    def send_signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        if self.returncode is None:
            self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, or minus the number of a signal."""
        if self.returncode is None:
            self._connection.settimeout(timeout)
            self.returncode = int(self._next())
            self._connection.close()
        return self.returncode


def fork(
    program: str | Path,
    arguments: Sequence[str] = (),
    *,
    environment: Mapping[str, str] | None = None,
    stdin: int | None = None,
    stdout: int,
    stderr: int,
    new_session: bool = False,
    directory: Path = ROOT,
) -> Forked:
    """Run a module as `python -m` would, or a file as `python -W error` would, with these files.

    Without a stdin, it reads nothing.
    """
    asked = {
        "program": str(program),
        "is_file": isinstance(program, Path),
        "arguments": list(arguments),
        "environment": dict(os.environ if environment is None else environment),
        "new_session": new_session,
        "directory": str(directory),
    }
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(_server())
    text = json.dumps(asked).encode()
    with open(os.devnull) as nothing:  # noqa: PTH123
        files = [nothing.fileno() if stdin is None else stdin, stdout, stderr]
        socket.send_fds(connection, [len(text).to_bytes(4, "big")], files)
    connection.sendall(text)
    return Forked(connection)


@cache
def _server() -> str:
    """The address of the process that forks. It ends with this one."""
    place = tempfile.TemporaryDirectory(prefix="queuert-fork-")
    address = f"{place.name}/socket"
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, address], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))},
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"

    def end(stdin: Any = process.stdin) -> None:
        stdin.close()
        process.wait()
        place.cleanup()

    atexit.register(end)
    return address


# In the process that forks


def serve(address: str) -> dict[str, Any] | None:
    """Fork for each request, and tell each caller how its process has ended. Returns what is asked for in
    each of those processes, and None at the end. It has no threads, so that its forks are whole."""
    for name in PRELOADED:
        importlib.import_module(name)
    gc.freeze()  # no collection touches what the forks share
    ended, end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(end, warn_on_full_buffer=False)
    callers: dict[int, socket.socket] = {}
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen(64)
        os.write(1, b"ready\n")
        while True:
            ready, _, _ = select.select([listening.fileno(), ended, 0], [], [])
            if 0 in ready:
                return None  # whoever started this process has ended
            if ended in ready:
                os.read(ended, 4096)
                _tell(callers)
            if listening.fileno() not in ready:
                continue
            connection, _ = listening.accept()
            text, files = _request(connection)
            if pid := os.fork():
                for file in files:
                    os.close(file)
                connection.sendall(f"{pid}\n".encode())
                callers[pid] = connection
                continue
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for each in (listening, connection, *callers.values()):
                each.close()
            os.close(ended)
            os.close(end)
            for number, file in enumerate(files):
                os.dup2(file, number)
                os.close(file)
            asked: dict[str, Any] = json.loads(text)
            return asked


def _request(connection: socket.socket) -> tuple[bytes, list[int]]:
    length, files, _, _ = socket.recv_fds(connection, 4, 3)
    text = b""
    while len(text) < int.from_bytes(length, "big"):
        text += connection.recv(1 << 16)
    return text, files


def _tell(callers: dict[int, socket.socket]) -> None:
    """Tell how those have ended that have ended."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            with callers.pop(pid) as connection, contextlib.suppress(OSError):  # the test may have ended
                connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def become(asked: Mapping[str, Any]) -> None:
    """Set up what a new interpreter finds, and run the program."""
    if asked["new_session"]:
        os.setsid()
    os.chdir(asked["directory"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    time.tzset()
    sys.path[:0] = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False, errors="backslashreplace")  # noqa: SIM115
    if "COVERAGE_PROCESS_START" in os.environ:
        import coverage

        coverage.process_startup(force=True)
    sys.argv[1:] = asked["arguments"]
    if asked["is_file"]:
        warnings.simplefilter("error")
        sys.argv[0] = asked["program"]
        sys.path.insert(0, str(Path(asked["program"]).parent))
    _run_to_the_end(asked["program"], is_file=asked["is_file"])


def _run_to_the_end(program: str, *, is_file: bool) -> None:
    """Run it, and end the process with its exit code."""
    code = 0
    try:
        if is_file:
            runpy.run_path(program, run_name="__main__")
        else:
            runpy.run_module(program, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
        if isinstance(ended.code, str):
            sys.stderr.write(f"{ended.code}\n")
    except KeyboardInterrupt:
        raise  # the interpreter ends by the signal
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    gc.collect()  # what the program has left open is a warning
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    if (asked := serve(sys.argv[1])) is not None:
        become(asked)
