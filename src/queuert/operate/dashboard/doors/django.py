"""The dashboard as the URLs of a Django project, with Django's own check of forms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.db import connections, transaction
from django.http import HttpResponse
from django.middleware.csrf import get_token
from django.urls import re_path
from django.views.decorators.csrf import csrf_exempt, csrf_protect

from queuert.base.blocking import run_blocking
from queuert.operate.dashboard.core import Admitted, Core, too_large
from queuert.operate.dashboard.doors.wsgi import finish
from queuert.operate.dashboard.messages import Request, Response, fields_of, length_of


def urls(core: Core) -> tuple[list[Any], str, str]:
    """What `path()` takes in place of `include(…)`."""

    def dashboard(request: Any, path: str) -> Any:
        asked = request_of(request, path)
        admitted = run_blocking(core.admit(asked, finish))
        if isinstance(admitted, Response):
            return _answer(admitted)
        if length_of(asked) > admitted.largest:
            return _answer(too_large())
        return protected(request, asked, admitted)

    def answer(request: Any, asked: Request, admitted: Admitted) -> Any:
        form = {name: request.POST.getlist(name) for name in request.POST}
        whole = replace(asked, form=form, framework_token=get_token(request))
        return _answer(run_blocking(core.respond(whole, admitted)))

    # Also if the middleware is missing. The check reads the form, so `access` is asked before.
    protected: Any = csrf_protect(answer)
    view: Any = csrf_exempt(dashboard)
    # Each change has a transaction of its own, also with ATOMIC_REQUESTS.
    for alias in connections:
        view = transaction.non_atomic_requests(using=alias)(view)
    return [re_path(r"^(?P<path>.*)$", view, name="page")], "queuert_dashboard", "queuert_dashboard"


def _answer(response: Response) -> Any:
    answer: Any = HttpResponse(response.body, status=response.status)
    del answer["Content-Type"]
    for name, value in response.headers:
        answer[name] = value
    return answer


def request_of(request: Any, path: str) -> Request:
    """The request without its form."""
    whole = str(request.path)
    return Request(
        method=str(request.method),
        path=f"/{path}",
        prefix=whole[: len(whole) - len(path)].rstrip("/"),
        query=fields_of(str(request.META.get("QUERY_STRING", ""))),
        headers={name.lower(): str(value) for name, value in request.headers.items()},
        native=request,
    )
