"""The dashboard as users make it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from queuert.client.client import Client
from queuert.client.sync_client import SyncClient
from queuert.errors import InvalidArgument
from queuert.operate.dashboard.access import AccessCheck
from queuert.operate.dashboard.awaited_client import awaited
from queuert.operate.dashboard.core import Core
from queuert.operate.dashboard.doors.asgi import AsgiDoor
from queuert.operate.dashboard.doors.wsgi import WsgiDoor
from queuert.operate.dashboard.drawing.hiding import Hide, Hiding
from queuert.operate.dashboard.site import Site

SHORTEST_SECRET = 16

AnyClient = Client[Any] | SyncClient[Any]


class Dashboard:
    """Web pages that show the jobs of a client, and change them.

        dashboard = Dashboard(client, title="shop", secret=SECRET, access=who)
        app.mount("/jobs", dashboard.asgi)  # FastAPI, Starlette, Litestar
        application = dashboard.wsgi  # Flask and other WSGI
        urlpatterns = [path("jobs/", dashboard.django)]  # Django

    It is closed until you say who may use it.

    Args:
        client: The client that everything is read and changed with: a `Client` for `asgi`, a
            `SyncClient` for `wsgi` and `django`. Or a function that returns it, for example
            `queuert_django.get_client`. The dashboard does not close it.
        title: What the pages are headed with (default: "queuert").
        secret: A text of 16 characters or more that only you know, the same in all processes. It
            signs the forms. `asgi` and `wsgi` need it, Django has its own.
        access: A function, plain or async, that is given the framework's own request, and returns
            an `Access` or None. None means 403. Without the function, everything is 403.
        hide: Names of fields that are not shown, in inputs, outputs and errors: a list for all job
            types, or a dictionary of lists by type (default: none).
    """

    def __init__(
        self,
        client: AnyClient | Callable[[], AnyClient],
        *,
        title: str = "queuert",
        secret: str | bytes | None = None,
        access: AccessCheck | None = None,
        hide: Hide = (),
    ) -> None:
        key = secret.encode() if isinstance(secret, str) else secret
        if key is not None and len(key) < SHORTEST_SECRET:
            raise InvalidArgument(
                f"secret needs {SHORTEST_SECRET} characters or more: make one with secrets.token_hex()"
            )
        if access is not None and not callable(access):
            raise InvalidArgument(f"access takes a function of a request, got {type(access).__name__}")
        self._given = client
        self._site = Site(title, Hiding(hide), key)
        self._access = access

    @cached_property
    def asgi(self) -> AsgiDoor:
        """An ASGI application, to be mounted or served. It needs a `Client`."""
        self._check_secret("asgi")
        return AsgiDoor(self._core(self._async_client))

    @cached_property
    def wsgi(self) -> WsgiDoor:
        """A WSGI application, to be mounted or served. It needs a `SyncClient`."""
        self._check_secret("wsgi")
        return WsgiDoor(self._core(self._sync_client))

    @cached_property
    def django(self) -> tuple[list[Any], str, str]:
        """For `path("jobs/", dashboard.django)`, like `admin.site.urls`. It needs a `SyncClient`:
        give `queuert_django.get_client` to `Dashboard`.
        """
        from queuert.operate.dashboard.doors.django import urls

        return urls(self._core(self._sync_client))

    def _core(self, client: Callable[[], Client[Any]]) -> Core:
        return Core(self._site, client, self._access)

    def _async_client(self) -> Client[Any]:
        client = self._client()
        if not isinstance(client, Client):
            raise InvalidArgument("dashboard.asgi needs a Client, from queuert.connect: with a SyncClient, use .wsgi")
        return client

    def _sync_client(self) -> Client[Any]:
        client = self._client()
        if not isinstance(client, SyncClient):
            raise InvalidArgument(
                "dashboard.wsgi and .django need a SyncClient, from queuert.connect_sync: with a Client, use .asgi"
            )
        return awaited(client)

    def _client(self) -> AnyClient:
        given = self._given
        return given if isinstance(given, Client | SyncClient) else given()  # pyright: ignore[reportUnknownVariableType]

    def _check_secret(self, door: str) -> None:
        if self._site.secret is None:
            raise InvalidArgument(f"dashboard.{door} needs secret=: a text that is the same in all processes")
