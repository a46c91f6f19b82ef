"""The app."""

from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class QueuertConfig(AppConfig):
    name = "queuert_django"
    label = "queuert"
    verbose_name = "Queuert"

    def ready(self) -> None:
        import_module("queuert_django.checks")  # registers them
        from queuert_django.operations import install_functions

        post_migrate.connect(install_functions, sender=self)
