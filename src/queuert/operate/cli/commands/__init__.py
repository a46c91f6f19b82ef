"""The commands, in the order in which `queuert --help` lists them.

A command module has a function `add(parsers)`. It adds a parser with `arguments.add_command`, which
also gets the function to run: it takes the parsed arguments and returns the exit code. A command on
the database adds its parser with `database.add_client_command`, and is given a client.
"""

from __future__ import annotations

from queuert.operate.cli.commands import (
    audit,
    change,
    check,
    dashboard,
    doctor,
    health,
    history,
    limits,
    ls,
    migrate,
    pause,
    retention,
    schedules,
    set_priority,
    show,
    status,
    tail,
    top,
    why,
    worker,
    workers,
)

COMMANDS = (
    status, ls, tail, show, why, workers, change, set_priority, pause, limits, schedules, retention, history, audit,
    doctor, health, migrate, check,
    worker, dashboard, top,
)  # fmt: skip

__all__ = ["COMMANDS"]
