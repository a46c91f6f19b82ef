"""The dashboard among the URLs of a Django project, with Django's own token."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from django.core.handlers.wsgi import WSGIRequest
from django.test import Client as Browser
from django.test import override_settings
from django.urls import path
from tests.dashboard import shop
from tests.django.conftest import database
from tests.django.shop.jobs import ReserveStock

from queuert.dashboard import Access, Dashboard
from queuert_django import get_client


def who(request: Any) -> Access | None:
    return Access("operator", "ada") if request.headers.get("x-user") == "ada" else None


class Urls:
    """What Django takes for a module of URLs."""

    def __init__(self, dashboard: Dashboard) -> None:
        self.urlpatterns = [path("ops/jobs/", dashboard.django)]


def test_pages_and_changes_with_its_own_token(tmp_path: Path) -> None:
    with database("sqlite", tmp_path, ATOMIC_REQUESTS=True) as alias:
        client = get_client(alias)
        chain = client.submit(ReserveStock(number=7), after=3600)
        dashboard = Dashboard(lambda: get_client(alias), title="shop", access=who)
        with override_settings(ROOT_URLCONF=Urls(dashboard), ALLOWED_HOSTS=["*"]):
            web = Browser(enforce_csrf_checks=True, headers={"x-user": "ada"})
            assert web.get("/ops/jobs/", headers={"x-user": "eve"}).status_code == 403
            for address in ("/ops/jobs/", f"/ops/jobs/chain/{chain.id}", "/ops/jobs/storage"):
                page = web.get(address)
                assert page.status_code == 200, page.content
                assert b'href="/ops/jobs/chains"' in page.content
            asked = web.get(f"/ops/jobs/change/cancel/{chain.id}")
            fields = shop.form_of(asked.content.decode())
            forged = web.post(f"/ops/jobs/change/cancel/{chain.id}", {"reason": "x"})
            assert forged.status_code == 403
            assert client.get_chain(chain).status == "pending"  # type: ignore[union-attr]
            done = web.post(f"/ops/jobs/change/cancel/{chain.id}", {**fields, "reason": "INC-42"})
            assert done.headers["location"] == f"/ops/jobs/chain/{chain.id}?done=cancelled"
            below = Browser(headers={"x-user": "ada"}).get("/ops/jobs/chains", SCRIPT_NAME="/site")
            assert b'href="/site/ops/jobs/chains"' in below.content
            anonymous = Browser(enforce_csrf_checks=True)
            with patch.object(WSGIRequest, "POST", property(lambda _: pytest.fail("the form was read"))):
                address = f"/ops/jobs/change/cancel/{chain.id}"
                assert anonymous.post(address, {"reason": "x"}).status_code == 403
                assert web.post(address, {"reason": "x" * 200_000}).status_code == 413
        (record,) = client.list_audit(chain).items
        assert (record.action, record.by, record.reason) == ("cancel", "ada", "INC-42")
