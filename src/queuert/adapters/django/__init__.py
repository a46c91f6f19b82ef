"""Jobs in a database of a Django project, on Django's own connections."""

from __future__ import annotations

from queuert.adapters.django.connection import DjangoConnection
from queuert.adapters.django.provider import DjangoProvider

__all__ = ["DjangoConnection", "DjangoProvider"]
