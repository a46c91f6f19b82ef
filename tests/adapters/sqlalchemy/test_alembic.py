"""Our tables in a revision of a real alembic environment."""

from __future__ import annotations

import io
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine
from tests.support.jobs import JOBS, Greet
from tests.support.postgres import Databases

from queuert import InvalidArgument
from queuert.adapters.postgres.adapter import sync_psycopg_state
from queuert.adapters.postgres.installation import Installation, functions_for
from queuert.adapters.postgres.operations import PostgresOperations
from queuert.ports.provider import run
from queuert.sqlalchemy import connect_sync, upgrade

ENV = """
from alembic import context
from sqlalchemy import NullPool, create_engine
url = context.config.get_main_option("sqlalchemy.url")
if context.is_offline_mode():
    context.configure(url=url)
    with context.begin_transaction():
        context.run_migrations()
else:
    with create_engine(url, poolclass=NullPool).connect() as connection:
        context.configure(connection=connection)
        with context.begin_transaction():
            context.run_migrations()
"""
ASYNC_ENV = """
import asyncio
from alembic import context
from sqlalchemy import NullPool
from sqlalchemy.ext.asyncio import create_async_engine
url = context.config.get_main_option("sqlalchemy.url")
def run(connection):
    context.configure(connection=connection)
    with context.begin_transaction():
        context.run_migrations()
async def main():
    async with create_async_engine(url, poolclass=NullPool).connect() as connection:
        await connection.run_sync(run)
asyncio.run(main())
"""
REVISION = """
from alembic import op
import sqlalchemy as sa
from queuert.sqlalchemy import downgrade as drop_jobs, upgrade as create_jobs
revision, down_revision = "1", None
def upgrade():
    op.create_table("orders", sa.Column("id", sa.Integer, primary_key=True))
    create_jobs(op.get_bind())
def downgrade():
    drop_jobs(op.get_bind())
    op.drop_table("orders")
"""
LATER = """
from alembic import op
from queuert.sqlalchemy import upgrade as create_jobs
revision, down_revision = "2", "1"
def upgrade():
    create_jobs(op.get_bind())
def downgrade():
    pass
"""
SQLITE, POSTGRES, ASYNC = "sqlite+pysqlite", "postgresql+psycopg", "postgresql+asyncpg"


class Project:
    """A directory as `alembic init` makes it, with two revisions."""

    def __init__(self, directory: Path, url: str) -> None:
        self.url = url
        (directory / "versions").mkdir()
        (directory / "env.py").write_text(ASYNC_ENV if "asyncpg" in url else ENV)
        (directory / "versions" / "1.py").write_text(REVISION)
        (directory / "versions" / "2.py").write_text(LATER)
        self.output = io.StringIO()
        self.config = Config(output_buffer=self.output)
        self.config.set_main_option("script_location", str(directory))
        self.config.set_main_option("path_separator", "os")
        self.config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))

    def names(self) -> list[str]:
        """What is in the database, except for what belongs to its own workings."""
        if "sqlite" in self.url:
            connection: Any = sqlite3.connect(self.url.partition("///")[2])
            query = "SELECT name FROM sqlite_schema WHERE name NOT LIKE 'sqlite%'"
        else:
            connection = psycopg.connect(self.url.replace("+psycopg", "").replace("+asyncpg", ""))
            query = (
                "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace "
                "UNION ALL SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace"
            )
        try:
            return sorted(row[0] for row in connection.execute(query))
        finally:
            connection.close()


@pytest.fixture(params=[SQLITE, POSTGRES, ASYNC])
def project(request: pytest.FixtureRequest, tmp_path: Path, postgres: Databases) -> Iterator[Project]:
    scheme: str = request.param
    if scheme == SQLITE:
        yield Project(tmp_path, f"{scheme}:///{tmp_path / 'app.db'}")
        return
    with postgres.fresh() as url:
        yield Project(tmp_path, url.replace("postgresql", scheme, 1))


def test_up_and_down(project: Project) -> None:
    command.upgrade(project.config, "head")
    assert {"orders", "queuert_job"} <= set(project.names())
    engine = create_engine(project.url.replace("asyncpg", "psycopg"))
    with connect_sync(engine, jobs=JOBS, migrate=False, notify=None) as client:
        with engine.begin() as connection:
            chain = client.start(connection, Greet())
        assert client.get_chain(chain) is not None
        assert client.migrate() == []
    engine.dispose()

    command.downgrade(project.config, "base")
    assert [name for name in project.names() if not name.startswith("alembic_version")] == []
    command.upgrade(project.config, "head")


@pytest.mark.parametrize("project", [POSTGRES, ASYNC], indirect=True)
def test_functions_that_have_changed_come_with_the_next_revision(project: Project) -> None:
    """The tables are as they were; another version's functions are there besides, and go with the rest."""
    digest = functions_for(Installation("public", "queuert_")).digest
    url = project.url.replace("+psycopg", "").replace("+asyncpg", "")
    command.upgrade(project.config, "1")
    with_functions = project.names()
    with closing(sync_psycopg_state(url)) as other:
        run(other.provider, None, PostgresOperations(clock="(clock_timestamp())").migrate())
    with psycopg.connect(url) as connection:
        for name in [name for name in with_functions if name.endswith(digest)]:
            connection.execute(f"DROP FUNCTION {name}".encode())
    command.upgrade(project.config, "2")
    assert set(with_functions) < set(project.names())
    command.downgrade(project.config, "base")
    assert [name for name in project.names() if not name.startswith("alembic_version")] == []


def test_a_revision_that_fails_leaves_nothing(tmp_path: Path, postgres: Databases) -> None:
    with postgres.fresh() as url:
        project = Project(tmp_path, url.replace("postgresql", POSTGRES, 1))
        (tmp_path / "versions" / "1.py").write_text(REVISION.replace("op.get_bind())\n", "op.get_bind()); 1 / 0\n", 1))
        with pytest.raises(ZeroDivisionError):
            command.upgrade(project.config, "head")
        assert project.names() == []


def test_offline_is_refused(tmp_path: Path) -> None:
    project = Project(tmp_path, f"{SQLITE}:///{tmp_path / 'app.db'}")
    with pytest.raises(InvalidArgument, match="alembic runs offline"):
        command.upgrade(project.config, "head", sql=True)


def test_what_is_no_connection_is_refused(tmp_path: Path) -> None:
    engine: Any = create_engine(f"{SQLITE}:///{tmp_path / 'app.db'}")
    with pytest.raises(InvalidArgument, match=r"op\.get_bind\(\)"):
        upgrade(engine)
    with (
        pytest.raises(InvalidArgument, match="only schema and table_prefix are options here, got poll_interval"),
        engine.begin() as connection,
    ):
        upgrade(connection, poll_interval=1)  # type: ignore[call-arg]
    engine.dispose()
