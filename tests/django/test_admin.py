"""Chains and jobs in the admin, as a browser sees them, on SQLite and PostgreSQL."""

from __future__ import annotations

import html
import io
import json
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, cast

import pytest
from django.apps import apps
from django.conf import settings
from django.contrib.auth.models import Permission, User
from django.core.management import CommandError, call_command
from django.db import connections, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from tests.django.shop.jobs import Audit, Remind, ReserveStock
from tests.support.django import added, postgres_settings, sqlite_settings

from queuert import Chain
from queuert_django import get_client
from queuert_django.clients import get_client as client_of
from queuert_django.management.commands.queuert import url_of
from queuert_django.models import Chain as ChainModel
from queuert_django.models import Job as JobModel
from queuert_django.options import admin_database, jobs_view

CHAINS = "/admin/queuert/chain/"
JOBS = "/admin/queuert/job/"


@pytest.fixture(scope="module")
def users() -> None:
    call_command("migrate", database="default", verbosity=0)


@pytest.fixture
def shown(alias: str, users: None) -> Iterator[str]:
    """The database that the admin shows."""
    settings.QUEUERT[alias] = {"admin": True}
    yield alias
    User.objects.all().delete()


def browser(*permissions: str) -> Client:
    """Of a user who may do this, and no more."""
    user = User.objects.create_user("ada", is_staff=True)
    for name in ("view_chain", "view_job", *permissions):
        user.user_permissions.add(Permission.objects.get(codename=name))
    client = Client()
    client.force_login(user)
    return client


def start(alias: str, *jobs: Any, **options: Any) -> list[Chain[Any]]:
    with transaction.atomic(using=alias):
        return [get_client(alias).start(connections[alias], job, **options) for job in jobs]


def fail(alias: str, chain: Chain[Any]) -> None:
    """As a worker would, with an error text that tries to be HTML."""
    operations = connections[alias]
    with operations.cursor() as cursor:
        error = '{"code": "TIMEOUT", "message": "<script>alert(1)</script>"}'
        if operations.vendor == "sqlite":
            cursor.execute(
                "UPDATE queuert_job SET status = 'failed', ready = NULL, completed_at = scheduled_at, attempt = 1, "
                "last_error = %s WHERE id = %s", [error, chain.id],
            )  # fmt: skip
        else:
            cursor.execute("DELETE FROM queuert_ready WHERE id = %s", [chain.id])
            cursor.execute(
                "UPDATE queuert_job SET status = 'failed', resting = 'failed', completed_at = now(), attempt = 1, "
                "last_error = %s WHERE id = %s", [error, chain.id],
            )  # fmt: skip


def rows(text: str) -> list[list[str]]:
    """The cells of the list, without the checkboxes."""
    found = re.findall(r"<tr>(.*?)</tr>", text[text.index("<tbody>") :] if "<tbody>" in text else "", re.DOTALL)
    cells = [re.findall(r"<t[dh] class=\"field-[^>]*>(.*?)</t[dh]>", row, re.DOTALL) for row in found]
    return [[html.unescape(re.sub("<[^>]*>", "", cell)).strip() for cell in row] for row in cells]


def told(response: Any) -> list[str]:
    """The messages. The admin writes their first letters in upper case."""
    found = re.findall(r'<li class="(?:success|warning|error)">(.*?)</li>', response.text, re.DOTALL)
    return [html.unescape(text[0].lower() + text[1:]) for text in found]


def act(web: Client, place: str, action: str, *ids: str, **fields: str) -> list[str]:
    given = {"action": action, "_selected_action": list(ids), "index": "0", **fields}
    return told(web.post(place, given, follow=True))


# Lists


def test_chains_are_listed_and_filtered(shown: str) -> None:
    first, second, third = start(shown, ReserveStock(number=1), Audit(), Remind(number=3))
    fail(shown, first)
    web = browser()
    listed = web.get(CHAINS)
    assert listed.status_code == 200
    assert [row[0] for row in rows(listed.text)] == [third.id, second.id, first.id]
    assert rows(listed.text)[-1][1:3] == ["reserve-stock", "failed"]
    assert rows(listed.text)[-1][-1] == "TIMEOUT"
    for query, found in {
        "status=failed": [first],
        "type=audit": [second],
        "status=pending&type=remind": [third],
        "since=1h": [third, second, first],
        "q=error:TIMEOUT": [first],
        "q=status:pending%20type:audit": [second],
        f"q={third.id}": [third],
        "q=type:none": [],
        "status=failed&type=audit": [],
    }.items():
        assert [row[0] for row in rows(web.get(f"{CHAINS}?{query}").text)] == [chain.id for chain in found], query


def test_jobs_are_listed_and_filtered(shown: str) -> None:
    first, second = start(shown, ReserveStock(number=1), Audit())
    web = browser()
    assert [row[:3] for row in rows(web.get(JOBS).text)] == [
        [second.id, "audit", "pending"],
        [first.id, "reserve-stock", "pending"],
    ]
    assert [row[0] for row in rows(web.get(f"{JOBS}?q={first.id}").text)] == [first.id]


def test_what_cannot_be_searched_is_explained(shown: str) -> None:
    start(shown, Audit())
    web = browser()
    for query, error in {
        "q=state:failed": "a filter has no word 'state'",
        "q=nothing": "a filter has words like status:failed, got 'nothing'",
        "after=nonsense": "'nonsense' is not a cursor",
    }.items():
        answer = web.get(f"{CHAINS}?{query}")
        assert rows(answer.text) == []
        assert told(answer)[0].startswith(error)
    assert web.get(f"{CHAINS}?colour=red", follow=True).redirect_chain == [(f"{CHAINS}?e=1", 302)]


def test_pages_follow_each_other_and_nothing_is_counted(shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queuert_django.admin.ReadOnlyAdmin.list_per_page", 2)
    chains = start(shown, *(Remind(number=number) for number in range(5)))
    web = browser()
    seen: list[str] = []
    place: str | None = f"{CHAINS}?type=remind"
    with CaptureQueriesContext(connections[shown]) as captured:
        while place is not None:
            text = web.get(place).text
            seen += [row[0] for row in rows(text)]
            following = re.search(r'<a href="(\?[^"]*)">older</a>', text)
            place = None if following is None else f"{CHAINS}{html.unescape(following[1])}"
    assert seen == [chain.id for chain in reversed(chains)]
    assert "Show counts" not in web.get(f"{CHAINS}?_facets=True").text
    assert not [query["sql"] for query in captured if re.search(r"SELECT COUNT\(\*\) AS", query["sql"])]
    # Another filter begins at its first page.
    second = re.search(r'<a href="(\?[^"]*)">older</a>', web.get(CHAINS).text)
    assert second is not None
    text = web.get(f"{CHAINS}{html.unescape(second[1])}").text
    assert 'href="?">latest</a>' in text
    assert "after=" not in "".join(re.findall(r'href="(\?[^"]*status=[^"]*)"', text))


# One chain, one job


def test_a_chain_is_explained(shown: str) -> None:
    (chain,) = start(shown, ReserveStock(number=7), after=3600)
    web = browser()
    text = html.unescape(web.get(f"{CHAINS}{chain.id}/change/").text)
    assert "it is not due before" in text
    assert "no worker that is alive has a handler for 'reserve-stock'" in text
    assert '"number": 7' in text
    assert f'href="{JOBS}{chain.id}/change/"' in text
    assert "_save" not in text
    job = html.unescape(web.get(f"{JOBS}{chain.id}/change/").text)
    assert f'href="{CHAINS}{chain.id}/change/"' in job
    assert '"number": 7' in job


def test_outputs_that_are_objects(shown: str) -> None:
    start(shown, Audit())
    out = io.StringIO()
    with redirect_stdout(out), pytest.raises(SystemExit):
        call_command("queuert", "--database", shown, "cancel", "type:audit", "--yes", "--json")
    operation = json.loads(out.getvalue())["id"]
    web = browser()
    for place in (CHAINS, JOBS):
        answer = web.get(f"{place}{operation}/change/")
        assert answer.status_code == 200
        assert '"changed": 1' in html.unescape(answer.text)


def test_stored_texts_are_not_html(shown: str) -> None:
    (chain,) = start(shown, Audit())
    fail(shown, chain)
    text = browser().get(f"{CHAINS}{chain.id}/change/").text
    assert "&lt;script&gt;alert(1)" in text
    assert "<script>alert(1)" not in text


def test_what_does_not_exist(shown: str) -> None:
    web = browser()
    for wrong in ("01a00000-0000-7000-8000-000000000000", "nonsense"):
        for place in (CHAINS, JOBS):
            answer = web.get(f"{place}{wrong}/change/", follow=True)
            assert f"with ID “{wrong}” doesn’t exist" in told(answer)[0]


# Actions


def test_retry_cancel_and_trigger(shown: str) -> None:
    failed, waiting = start(shown, Audit(), Remind(number=1), after=3600)
    fail(shown, failed)
    web = browser("retry_chain", "cancel_chain", "trigger_chain")
    assert act(web, CHAINS, "retry", failed.id, waiting.id) == [
        "retried: 1 chain; left as they are: 1, because they are not failed"
    ]
    assert act(web, CHAINS, "trigger", waiting.id) == ["triggered: 1 chain"]
    assert act(web, CHAINS, "cancel", waiting.id) == ["cancelled: 1 chain"]
    statuses = {chain.id: chain.status for chain in client_of(shown).list_chains().items}
    assert statuses == {failed.id: "pending", waiting.id: "cancelled"}
    # What was done is in the history of the admin.
    history = web.get(f"{CHAINS}{waiting.id}/history/").text
    assert "cancelled the chain" in history
    # And in the audit, with the name of the user.
    audit = client_of(shown).list_audit().items
    assert [(record.action, record.chain_id, record.by) for record in audit] == [
        ("cancel", waiting.id, "ada"),
        ("trigger", waiting.id, "ada"),
        ("retry", failed.id, "ada"),
    ]


def test_a_forged_selection_of_everything_changes_nothing_else(shown: str) -> None:
    first, second = start(shown, Audit(), Audit())
    act(browser("cancel_chain"), CHAINS, "cancel", first.id, "nonsense", select_across="1")
    assert {chain.id: chain.status for chain in client_of(shown).list_chains().items} == {
        first.id: "cancelled", second.id: "pending",
    }  # fmt: skip


def test_pause_and_resume(shown: str) -> None:
    audit, remind = start(shown, Audit(), Remind(number=1))
    web = browser("pause_job")
    assert act(web, CHAINS, "pause_these_types", audit.id, remind.id, reason="PSP down", until="2h") == [
        "paused: audit, remind"
    ]
    (pause, _) = client_of(shown).list_pauses()
    assert (pause.reason, pause.by, str(pause.target)) == ("PSP down", "ada", "type audit")
    assert pause.until is not None
    assert "Paused: type audit, since" in web.get(JOBS).text
    assert act(web, JOBS, "resume_these_types", audit.id) == ["resumed: audit"]
    assert act(web, JOBS, "resume_these_types", audit.id, remind.id) == ["resumed: remind; not paused: audit"]
    assert act(web, CHAINS, "pause_these_types", audit.id, until="soon") == [
        "nothing was paused: 'soon' is neither a duration, like 90s, 15m, 2h or 3d, nor a time, like 2026-11-17T12:00"
    ]
    assert act(web, CHAINS, "pause_these_types", audit.id, until="2020-01-01") == [
        "nothing was paused: '2020-01-01' is over: the pause would have ended already"
    ]
    assert client_of(shown).list_pauses() == []
    records = client_of(shown).list_audit().items
    assert [(record.action, record.target, record.by) for record in records] == [
        ("resume", "type remind", "ada"),
        ("resume", "type audit", "ada"),
        ("pause", "type remind", "ada"),
        ("pause", "type audit", "ada"),
    ]


def test_each_action_needs_its_permission(shown: str) -> None:
    (chain,) = start(shown, Audit())
    web = browser()
    for name in ("retry", "cancel", "trigger", "pause_these_types", "resume_these_types"):
        assert f'value="{name}"' not in web.get(CHAINS).text
        act(web, CHAINS, name, chain.id)
    found = client_of(shown).get_chain(chain)
    assert found is not None
    assert found.status == "pending"
    assert client_of(shown).list_pauses() == []
    for place in (f"{CHAINS}add/", f"{CHAINS}{chain.id}/delete/", f"{JOBS}add/"):
        assert web.get(place).status_code == 403
    assert web.post(f"{CHAINS}{chain.id}/change/", {"status": "failed"}).status_code == 403
    User.objects.all().delete()
    stranger = User.objects.create_user("eve", is_staff=True)
    web.force_login(stranger)
    assert web.get(CHAINS).status_code == 403
    assert web.get(f"{JOBS}{chain.id}/change/").status_code == 403


def test_a_refused_change_is_told(shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The chain has changed between the look and the change."""
    (chain,) = start(shown, Audit())
    fail(shown, chain)
    web = browser("retry_chain")
    monkeypatch.setattr("queuert_django.admin.change_chains", _after(shown, chain))
    (text,) = act(web, CHAINS, "retry", chain.id)
    assert text.startswith("nothing was changed: ")


def _after(alias: str, chain: Chain[Any]) -> Any:
    from queuert_django.actions import change_chains

    class Meanwhile:
        def __init__(self, client: Any) -> None:
            self._client = client
            self.list_chains = client.list_chains

        def retry(self, tx: Any, ids: Any, by: str) -> Any:
            self._client.delete(tx, chain)
            return self._client.retry(tx, ids, by=by)

    def changed_meanwhile(client: Any, _: str, change: Any, ids: Any, by: str) -> Any:
        return change_chains(cast(Any, Meanwhile(client)), alias, change, ids, by)

    return changed_meanwhile


# Models and settings


def test_the_models_read_the_view(shown: str) -> None:
    (chain,) = start(shown, ReserveStock(number=7))
    (job,) = JobModel._base_manager.using(shown).filter(pk=chain.id)
    assert (job.id, job.job_type, job.status, job.input) == (chain.id, "reserve-stock", "pending", {"number": 7})
    assert str(job) == str(ChainModel._base_manager.using(shown).get(pk=chain.id)) == f"reserve-stock {chain.id}"
    assert job.created_at == client_of(shown).get_job(chain.id).created_at.replace(  # type: ignore[union-attr]
        microsecond=job.created_at.microsecond  # SQLite's view has milliseconds
    )
    out = io.StringIO()
    call_command("dumpdata", "queuert", database=shown, stdout=out)
    assert out.getvalue() == "[]"  # what could not be loaded is not dumped


def test_the_database_and_the_names_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for given, alias, view in (
        ({"default": {}}, "default", "queuert_jobs"),
        ({"default": {"table_prefix": "q_"}}, "default", "q_jobs"),
        ({"default": {"schema": "work"}}, "default", '"work"."queuert_jobs"'),
        ({}, None, "queuert_jobs"),
    ):  # fmt: skip
        monkeypatch.setattr(settings, "QUEUERT", given)
        assert (admin_database(), jobs_view()) == (alias, view)
    with added(sqlite_settings("x.db")) as other:
        monkeypatch.setattr(settings, "QUEUERT", {other: {}, "default": {}})
        assert admin_database() == "default"
        monkeypatch.setattr(settings, "QUEUERT", {"default": {}, other: {"admin": True}})
        assert admin_database() == other
        monkeypatch.setattr(settings, "QUEUERT", {other: {}})
        assert admin_database() == other
        monkeypatch.setattr(settings, "QUEUERT", {"nowhere": {}})
        assert jobs_view() == "queuert_jobs"  # the system checks report what is wrong
        settings.QUEUERT[other] = {}


def test_the_permissions_are_our_own() -> None:
    model = apps.get_model("queuert", "chain")
    assert model._meta.default_permissions == ("view",)


# The command


def test_the_command_knows_the_database(shown: str) -> None:
    (chain,) = start(shown, Audit())
    for arguments, wanted in (
        (["status"], "audit"),
        (["why", chain.id], "no worker that is alive has a handler for 'audit'"),
        (["ls", "status:pending", "--json"], f'"id": "{chain.id}"'),
    ):
        out = io.StringIO()
        with redirect_stdout(out), pytest.raises(SystemExit) as ended:
            call_command("queuert", "--database", shown, *arguments)
        assert ended.value.code == 0
        assert wanted in out.getvalue()


def test_what_the_command_refuses(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="no database 'nowhere'"):
        call_command("queuert", "--database", "nowhere", "status")
    with added(sqlite_settings(":memory:")) as alias, pytest.raises(CommandError, match="is not a file"):
        call_command("queuert", "--database", alias, "status")


def test_urls_of_the_settings(tmp_path: Path) -> None:
    with added(sqlite_settings(tmp_path / "a b.db")) as alias:
        assert url_of(alias) == f"sqlite:///{tmp_path}/a%20b.db"
    with added(postgres_settings("postgresql://ada:pass%20word%40@db:5433/shop", sslmode="require")) as alias:
        url = url_of(alias)
        assert url.startswith("postgresql:///shop?")
        for part in ("host=db", "port=5433", "user=ada", "password=pass%20word%40", "sslmode=require"):
            assert part in url


def test_tables_with_other_names(tmp_path: Path, users: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command and the lists find them. (The name in the model is read when Django starts.)"""
    with added(sqlite_settings(tmp_path / "x.db"), table_prefix="q_", admin=True) as alias:
        call_command("migrate", "queuert", database=alias, verbosity=0)
        (chain,) = start(alias, Audit())
        out = io.StringIO()
        with redirect_stdout(out), pytest.raises(SystemExit):
            call_command("queuert", "--database", alias, "ls")
        assert chain.id in out.getvalue()
        assert [row[0] for row in rows(browser().get(CHAINS).text)] == [chain.id]
        User.objects.all().delete()
