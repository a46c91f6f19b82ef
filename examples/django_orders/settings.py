"""A small Django project.

DATABASE_URL may be postgresql://…. Without it, the orders are in a file.
"""

from __future__ import annotations

import os
from typing import Any

from psycopg.conninfo import conninfo_to_dict


def database(url: str | None) -> dict[str, Any]:
    if url is None or url.startswith("sqlite:///"):
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": "orders.db" if url is None else url.removeprefix("sqlite:///"),
            "OPTIONS": {"transaction_mode": "IMMEDIATE"},  # queuert's checks require it
        }
    parts = conninfo_to_dict(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.get("dbname"),
        "USER": parts.get("user", ""),
        "PASSWORD": parts.get("password", ""),
        "HOST": parts.get("host", ""),
        "PORT": str(parts.get("port", "")),
        "OPTIONS": {"pool": True},  # handlers in threads also take connections from it
    }


SECRET_KEY = "only an example"
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
DATABASES = {"default": database(os.environ.get("DATABASE_URL"))}
INSTALLED_APPS = ["queuert_django", "django_orders.shop"]
ROOT_URLCONF = "django_orders.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
