"""`manage.py queuert_worker`: runs the handlers in the `jobs.py` of the installed apps."""

from __future__ import annotations

import asyncio
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from queuert import Client, QueuertError, Worker
from queuert_django.clients import worker_client
from queuert_django.discovery import find_handlers


class Command(BaseCommand):
    help = "Runs the handlers of queuert jobs until SIGTERM or SIGINT."
    requires_migrations_checks = True

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--database", default="default", help="the alias of the database with the jobs")
        parser.add_argument("--concurrency", type=int, default=10, help="how many jobs to run at once (default: 10)")
        parser.add_argument("--queues", help="the names of the queues to serve, separated by commas (default: all)")
        parser.add_argument(
            "--poll-interval",
            type=float,
            default=5.0,
            help="how often to look for jobs without a notification, in seconds (default: 5)",
        )
        parser.add_argument("--name", help="the beginning of this worker's id")

    def handle(self, *_: Any, **options: Any) -> None:
        alias = options["database"]
        if alias not in connections:
            raise CommandError(f"there is no database {alias!r} in DATABASES")
        try:
            client = worker_client(alias)
            worker = self._worker(client, options)
        except QueuertError as error:
            raise CommandError(str(error)) from error
        code = asyncio.run(self._run(client, worker))
        if code:
            sys.exit(code)

    def _worker(self, client: Client[Any], options: dict[str, Any]) -> Worker:
        handlers = find_handlers()
        if not handlers:
            raise CommandError("no handlers found: put `handlers = Handlers()` into the jobs.py of an installed app")
        queues = options["queues"]
        return Worker(
            client,
            handlers,
            name=options["name"],
            concurrency=options["concurrency"],
            queues=None if queues is None else [name.strip() for name in queues.split(",")],
            poll_interval=options["poll_interval"],
        )

    async def _run(self, client: Client[Any], worker: Worker) -> int:
        async with client:
            self.stdout.write(f"{worker.id} is running. Stop it with Ctrl-C.")
            self.stdout.flush()
            return await worker.run()
