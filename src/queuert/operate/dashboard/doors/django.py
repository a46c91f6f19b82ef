"""The dashboard as the URLs of a Django project, with Django's own check of forms."""

from __future__ import annotations

from typing import Any

from django.db import connections, transaction
from django.http import HttpResponse
from django.middleware.csrf import get_token
from django.urls import re_path
from django.views.decorators.csrf import csrf_protect

from queuert.base.blocking import run_blocking
from queuert.operate.dashboard.core import Core
from queuert.operate.dashboard.doors.wsgi import finish
from queuert.operate.dashboard.messages import Request, fields_of


def urls(core: Core) -> tuple[list[Any], str, str]:
    """What `path()` takes in place of `include(…)`."""

    def dashboard(request: Any, path: str) -> Any:
        response = run_blocking(core.respond(request_of(request, path), finish))
        answer: Any = HttpResponse(response.body, status=response.status)
        del answer["Content-Type"]
        for name, value in response.headers:
            answer[name] = value
        return answer

    # Also if the middleware is missing.
    view: Any = csrf_protect(dashboard)
    # Each change has a transaction of its own, also with ATOMIC_REQUESTS.
    for alias in connections:
        view = transaction.non_atomic_requests(using=alias)(view)
    return [re_path(r"^(?P<path>.*)$", view, name="page")], "queuert_dashboard", "queuert_dashboard"


def request_of(request: Any, path: str) -> Request:
    whole = str(request.path)
    return Request(
        method=str(request.method),
        path=f"/{path}",
        prefix=whole[: len(whole) - len(path)].rstrip("/"),
        query=fields_of(str(request.META.get("QUERY_STRING", ""))),
        form={name: request.POST.getlist(name) for name in request.POST},
        headers={name.lower(): str(value) for name, value in request.headers.items()},
        native=request,
        framework_token=get_token(request),
    )
