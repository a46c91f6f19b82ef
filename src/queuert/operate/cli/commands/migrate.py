"""`queuert migrate`: creates or updates the tables. No other command does that."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from queuert.adapters.sql.migrate import MigrationPlan
from queuert.operate.cli.arguments import Parsers, add_command, not_negative
from queuert.operate.cli.database import add_database_options, make_client, table_options, url_of
from queuert.operate.exits import DONE, NOT_DONE, CommandError
from queuert.operate.terminal import Output, add_output_options
from queuert.wiring.urls import database_file, is_postgres

TEXT = """\
Creates or updates the tables, and the functions of this version on PostgreSQL. What is up to date
is left as it is. Processes may go on working meanwhile.

With --plan nothing is changed: the exit code is 1 if there is something to do. With --sql the
statements are written to stdout, for tools that run migrations of their own. No database is needed
for that, but the URL tells which kind of database it is. Without --from they are for an empty
database.
"""


def add(parsers: Parsers) -> None:
    parser = add_command(parsers, "migrate", "create or update the tables", TEXT, run)
    parser.add_argument("--plan", action="store_true", help="only show what would be done")
    parser.add_argument("--sql", action="store_true", help="only write the SQL statements")
    parser.add_argument(
        "--from",
        metavar="VERSION",
        dest="since",
        type=not_negative,
        help="with --sql: the version that the tables have now, as --plan shows it (default: 0, no tables)",
    )
    add_output_options(parser)
    add_database_options(parser)


def run(arguments: argparse.Namespace) -> int:
    output = Output(arguments)
    if arguments.sql:
        return _write_sql(arguments, output)
    if arguments.since is not None:
        raise CommandError("--from is for --sql")
    if arguments.plan:
        return _show_plan(asyncio.run(_plan(arguments)), output)
    return asyncio.run(_migrate(arguments, output))


def _place(arguments: argparse.Namespace) -> tuple[str | None, str]:
    """Schema, None for SQLite, and prefix of the tables."""
    options = table_options(arguments)
    schema = options.get("schema", "public") if is_postgres(url_of(arguments)) else None
    return schema, options.get("table_prefix", "queuert_")


def _versions(arguments: argparse.Namespace) -> list[int]:
    from queuert.wiring.schema import versions  # it imports all databases

    return versions(*_place(arguments))


def _write_sql(arguments: argparse.Namespace, output: Output) -> int:
    from queuert.wiring.schema import statements_to_update

    make_client(arguments)  # it checks the URL and the names
    known = _versions(arguments)[-1]
    since: int = arguments.since or 0
    if since > known:
        raise CommandError(f"--from {since} is newer than this version of queuert, which knows {known}")
    output.line(f"-- queuert: schema version {since} to {known}")
    for statement in ["BEGIN", *statements_to_update(*_place(arguments), since), "COMMIT"]:
        output.line(f"{statement};")
    return DONE


async def _plan(arguments: argparse.Namespace) -> MigrationPlan:
    file = database_file(url_of(arguments))
    client = make_client(arguments)
    if file is not None and not file.exists():
        missing = _versions(arguments)
        return MigrationPlan(0, missing[-1], missing)
    async with client:
        sessions = client.sessions
        # Not in the state port: only databases with tables have this, and all URLs here name one.
        state: Any = sessions.engine.state
        plan: MigrationPlan = await sessions.run(state.plan_migration())
        return plan


def _show_plan(plan: MigrationPlan, output: Output) -> int:
    to_do = bool(plan.missing or plan.functions)
    if output.json:
        output.json_line({"version": plan.version, "known": plan.known, "missing": plan.missing,
                       "functions": plan.functions})  # fmt: skip
        return NOT_DONE if to_do else DONE
    has = f"the tables have version {plan.version}" if plan.version else "there are no tables"
    output.line(f"{has}, this version of queuert needs {plan.known}")
    if plan.missing:
        output.line(f"to apply: {', '.join(map(str, plan.missing))}")
    if plan.functions:
        output.line("to install: the functions of this version")
    if not to_do:
        output.line("nothing to do")
    return NOT_DONE if to_do else DONE


async def _migrate(arguments: argparse.Namespace, output: Output) -> int:
    async with make_client(arguments) as client:
        applied = await client.migrate()
    known = _versions(arguments)[-1]
    if output.json:
        output.json_line({"version": known, "applied": applied})
    elif applied:
        output.line(f"applied: {', '.join(map(str, applied))}")
    else:
        output.line(f"the tables are up to date: version {known}")
    return DONE
