"""Django for the tests: configured once in a process, with databases that are added as tests need them.

Nothing of it touches other tests: no logging is set up, no time zone, and connections are closed by who opens them.
"""

from __future__ import annotations

import atexit
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from django.conf import settings
from django.db import connections
from psycopg.conninfo import conninfo_to_dict

import django

APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.admin",
    "queuert_django",
    "tests.django.shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]


class UsersInOnePlace:
    """The tables of the admin are in the default database only: to create them everywhere takes too long."""

    def allow_migrate(self, db: str, app_label: str, **_: Any) -> bool | None:
        return None if app_label not in ("auth", "admin", "sessions") else db == "default"


_numbers = count(1)


def sqlite_settings(path: Path | str, **options: Any) -> dict[str, Any]:
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(path),
        "OPTIONS": {"transaction_mode": "IMMEDIATE", **options},
    }


def postgres_settings(url: str, **options: Any) -> dict[str, Any]:
    parts: dict[str, Any] = conninfo_to_dict(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts["dbname"],
        "USER": parts.get("user", ""),
        "PASSWORD": parts.get("password", ""),
        "HOST": parts.get("host", ""),
        "PORT": str(parts.get("port", "")),
        "OPTIONS": options,
    }


def set_up() -> None:
    """Once; the default database is a file that nobody uses."""
    if settings.configured:
        return
    directory = Path(mkdtemp(prefix="queuert-django-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    settings.configure(
        SECRET_KEY="for tests",
        INSTALLED_APPS=APPS,
        DATABASES={"default": sqlite_settings(directory / "default.db")},
        QUEUERT={"default": {}},
        ROOT_URLCONF="tests.django.shop.urls",
        MIDDLEWARE=MIDDLEWARE,
        TEMPLATES=TEMPLATES,
        DATABASE_ROUTERS=["tests.support.django.UsersInOnePlace"],
        STATIC_URL="static/",
        ALLOWED_HOSTS=["*"],
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        USE_TZ=True,
        LOGGING_CONFIG=None,
    )
    django.setup()


def add_database(database: dict[str, Any], **options: Any) -> str:
    """A database of one's own, with `options` for jobs; answers its alias."""
    set_up()
    alias = f"db{next(_numbers)}"
    settings.DATABASES[alias] = database
    connections.settings = connections.configure_settings(settings.DATABASES)
    settings.QUEUERT[alias] = options
    return alias


def remove_database(alias: str) -> None:
    """Connections to it have been closed, each in its own thread."""
    del settings.DATABASES[alias]
    connections.settings = connections.configure_settings(settings.DATABASES)
    del settings.QUEUERT[alias]


@contextmanager
def added(database: dict[str, Any], **options: Any) -> Generator[str]:
    alias = add_database(database, **options)
    try:
        yield alias
    finally:
        connections[alias].close()
        del connections[alias]
        remove_database(alias)
