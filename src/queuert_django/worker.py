"""The worker of a project: what each process of `manage.py queuert worker` runs."""

from __future__ import annotations

import json
import os
from typing import Any

from django.apps import apps

import django
from queuert import QueuertError, Worker
from queuert.operate.exits import CommandError
from queuert_django.clients import worker_client
from queuert_django.discovery import find_handlers, find_schedules

PLACE = f"{__name__}:make_worker"
OPTIONS = "QUEUERT_DJANGO_WORKER"
"""The variable with the options of `make_worker`, as JSON."""
CONCURRENCY = 10

if OPTIONS in os.environ and not apps.ready:  # in a worker process, which manage.py has not set up
    django.setup()


def make_worker() -> Worker:
    """A worker with the handlers and schedules in the `jobs.py` of the installed apps."""
    options: dict[str, Any] = {"concurrency": CONCURRENCY, **json.loads(os.environ.get(OPTIONS, "{}"))}
    handlers = find_handlers()
    if not handlers:
        raise CommandError("no handlers found: put `handlers = Handlers()` into the jobs.py of an installed app")
    try:
        client = worker_client(options.pop("database", "default"))
        return Worker(client, handlers, schedules=find_schedules(), **options)
    except QueuertError as error:
        raise CommandError(str(error)) from error
