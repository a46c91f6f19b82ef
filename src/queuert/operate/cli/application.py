"""What a command needs of an application's code: its job types and its handlers."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Sequence
from typing import Any

from queuert.client.base import BaseClient
from queuert.features.schedules.stored import Definition
from queuert.jobs.job import JobClass
from queuert.jobs.registry import Registry
from queuert.operate.cli.supervisor.loading import find
from queuert.operate.exits import CommandError
from queuert.worker.handlers.registry import Handlers, registry_of
from queuert.worker.worker import Worker, definitions_of

WANTED = "name a client, a Worker, Handlers, or a plain function that returns one of these"


def places_in(arguments: argparse.Namespace) -> list[str]:
    """Where the code is: what was given, or the project that the command is part of."""
    return arguments.app or [place for place in (arguments.default_app,) if place is not None]


class Application:
    """What is at `package.module:name`, perhaps at several: clients, workers and handlers."""

    def __init__(self, places: Sequence[str]) -> None:
        self._registries: list[Registry] = []
        self._handled: set[str] = set()
        self._classes: list[JobClass] = []
        self._knows_handlers = False
        self._declared: dict[str, Definition] | None = None
        for place in places:
            self._add(place, find(place, "client"))

    def _add(self, place: str, found: Any) -> None:
        if callable(found) and not isinstance(found, type):
            found = found()
        if inspect.iscoroutine(found):
            found.close()
            raise CommandError(f"{place}() is async: {WANTED}")
        if isinstance(found, list | tuple):
            for each in found:  # pyright: ignore[reportUnknownVariableType]
                self._add(place, each)
        elif isinstance(found, Worker):
            self._registries.append(found.client.sessions.engine.jobs)
            self._handled.update(found.job_types)
            self._knows_handlers = True
            self._declared = {**(self._declared or {}), **definitions_of(found)}
        elif isinstance(found, BaseClient):
            client: BaseClient[Any] = found  # pyright: ignore[reportUnknownVariableType]
            self._registries.append(client.sessions.engine.jobs)
        elif isinstance(found, Handlers):
            handlers: Handlers[Any] = found  # pyright: ignore[reportUnknownVariableType]
            self._classes += [handler.job_class for handler in registry_of(handlers).by_name.values()]
            self._knows_handlers = True
        else:
            raise CommandError(f"{place} is a {type(found).__name__}: {WANTED}")

    def registry(self) -> Registry:
        """All job types."""
        known = [job_type.cls for registry in self._registries for job_type in registry]
        if len(self._registries) == 1 and set(self._classes) <= set(known):
            return self._registries[0]  # with the codecs of the client
        return Registry(dict.fromkeys([*known, *self._classes]))

    def handled(self) -> set[str] | None:
        """The names that jobs with a handler are stored with. None: no handlers were named."""
        if not self._knows_handlers:
            return None
        return self._handled | {name for cls in self._classes for name in cls.__queuert_stored__}

    def declared(self) -> dict[str, Definition] | None:
        """The schedules that the workers declare. None: no worker was named."""
        return self._declared
