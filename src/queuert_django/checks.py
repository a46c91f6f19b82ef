"""System checks for settings under which jobs would not work.

`manage.py check` reports them, and so does the server before it starts.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, register
from django.db import connections

from queuert.adapters.django.databases import postgres_problem, sqlite_problem
from queuert.errors import InvalidArgument, JobTypeError
from queuert.features.schedules.declared import declarations_of
from queuert.worker.handlers.registry import registry_of
from queuert_django.discovery import find_handlers, find_jobs, find_schedules
from queuert_django.options import databases


@register()
def check_databases(**_: Any) -> list[CheckMessage]:
    try:
        aliases = list(databases())
    except InvalidArgument as error:
        return [Error(str(error), hint="See the page on Django in queuert's documentation.", id="queuert.E001")]
    found: list[CheckMessage] = []
    for alias in aliases:
        vendor = connections[alias].vendor
        where = f"DATABASES[{alias!r}]"
        if vendor == "postgresql":
            problem = postgres_problem()
            if problem is not None:
                found.append(Error(f"{where}: {problem}", id="queuert.E002"))
        elif vendor == "sqlite":
            problem = sqlite_problem(settings.DATABASES[alias])
            if problem is not None:
                found.append(Error(f"{where}: {problem}", id="queuert.E003"))
        else:
            found.append(
                Error(
                    f"{where} is {vendor}. Only PostgreSQL and SQLite can store jobs.",
                    hint="Name the databases with jobs in the setting QUEUERT, as in QUEUERT = {'jobs': {}}.",
                    id="queuert.E004",
                )
            )
    return found


@register()
def check_jobs(**_: Any) -> list[CheckMessage]:
    """Check that the job classes and the schedules of all apps fit together, and that each
    handler's job is among them.
    """
    try:
        jobs = find_jobs()
        for handlers in find_handlers():
            for handler in registry_of(handlers).by_name.values():
                jobs.require(handler.job_class)
        declarations_of(find_schedules())
    except (JobTypeError, InvalidArgument) as error:
        return [Error(str(error), hint="Put job classes into the jobs.py of an installed app.", id="queuert.E005")]
    return []
