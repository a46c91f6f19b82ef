"""Finds job classes, handlers and schedules in the `jobs.py` of the installed apps."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any, TypeVar

from django.apps import apps
from django.utils.module_loading import module_has_submodule

from queuert import Handlers, Schedules
from queuert.jobs.registry import JobsItem, JobTypes, Registry

T = TypeVar("T")


def job_modules() -> list[ModuleType]:
    """The module `jobs` of each app that has one. An error in such a module is raised unchanged."""
    return [
        import_module(f"{config.name}.jobs")
        for config in apps.get_app_configs()
        if module_has_submodule(config.module, "jobs")
    ]


def find_jobs() -> Registry:
    """All job classes and `JobTypes` in these modules."""
    items: list[JobsItem] = []
    for module in job_modules():
        items.append(module)
        items.extend(value for value in vars(module).values() if isinstance(value, JobTypes))
    return Registry(items)


def find_handlers() -> list[Handlers[Any]]:
    """Each `Handlers` in these modules, once."""
    return _find(Handlers)


def find_schedules() -> list[Schedules]:
    """Each `Schedules` in these modules, once."""
    return _find(Schedules)


def _find(kind: type[T]) -> list[T]:
    found: dict[int, T] = {}
    for module in job_modules():
        for value in vars(module).values():
            if isinstance(value, kind):
                found[id(value)] = value
    return list(found.values())
