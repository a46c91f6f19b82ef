"""Commands that change all chains of a filter, plans with `--cascade`, and the audit."""

from __future__ import annotations

import asyncio
import re
import signal
from typing import Any

import pytest
from tests.behaviour.steps import PATIENCE
from tests.cli.incidents import BLOCKED, DONE, FAILED, JOBS, LATER, READY, cause_incidents, handlers
from tests.cli.running import Ended, Terminal, in_process, queuert, still

from queuert import Client, Worker, connect

ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")


@pytest.fixture
def place(url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database with incidents."""
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    asyncio.run(cause_incidents(url))
    return url


def open_client(url: str) -> Client[Any]:
    return connect(url, jobs=JOBS, migrate=False)


def statuses(url: str) -> dict[str, str]:
    async def read() -> dict[str, str]:
        async with open_client(url) as client:
            return {chain.id: chain.status or "" for chain in (await client.list_chains()).items}

    return asyncio.run(read())


def dated(text: str) -> str:
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d\d:\d\d", "DATE", text)


@pytest.mark.drivers
def test_a_plan_by_a_filter(place: str) -> None:
    before = statuses(place)
    shown = in_process("retry", "status:failed", "--plan", "--url", place)
    assert (shown.code, shown.err) == (0, "")
    assert dated(shown.out) == (
        "ID                                    TYPE         STATUS  CREATED\n"
        f"{FAILED}  charge-card  failed  DATE\n"
        "retry: 1 chain (1 charge-card)\n"
        "note: no worker that is alive has a handler for charge-card: its jobs wait\n"
    )
    shown = in_process("cancel", "type:bill,report", "--plan", "--json", "--url", place)
    assert shown.objects == [
        {
            "action": "cancel",
            "filter": "type:bill,report",
            "chains": 3,
            "more": False,
            "types": {"bill": 2, "report": 1},
            "sample": [READY, LATER, BLOCKED],
            "cascaded": [],
            "notes": [],
        }
    ]
    assert in_process("trigger", "type:nothing", "--plan", "--url", place) == Ended(0, "no chain matches\n", "")
    assert in_process("trigger", "type:nothing", "--yes", "--url", place) == Ended(0, "no chain matches\n", "")
    refused = in_process("retry", "status:failed", "--url", place)
    assert (refused.code, refused.err) == (
        1, "queuert retry: not confirmed: there is no terminal to ask on, so give --yes\n",
    )  # fmt: skip
    assert statuses(place) == before


def test_plans_list_what_cascade_leads_to(place: str) -> None:
    shown = in_process("delete", "type:report", "--cascade", "--plan", "--url", place)
    assert dated(shown.out) == (
        "ID                                    TYPE    STATUS   CREATED\n"
        f"{BLOCKED}  report  blocked  DATE\n"
        "delete: 1 chain (1 report)\n"
        "because of --cascade, also 1:\n"
        "ID                                    TYPE         STATUS  CREATED\n"
        f"{FAILED}  charge-card  failed  DATE\n"
    )
    shown = in_process("delete", BLOCKED, "--cascade", "--plan", "--url", place)
    assert shown.out == (
        "ID                                    TYPE         STATUS   PLAN\n"
        f"{BLOCKED}  report       blocked  delete\n"
        f"{FAILED}  charge-card  failed   delete, because of --cascade\n"
    )
    shown = in_process("cancel", FAILED, "--cascade", "--plan", "--json", "--url", place)
    assert [found["plan"] for found in shown.objects] == ["left as it is: not blocked, pending or running"]


@pytest.mark.drivers
def test_without_a_worker_the_command_does_it_itself(place: str) -> None:
    done = queuert("retry", "status:failed", "--yes", "--by", "on-call", "--reason", "INC-42", "--url", place)
    assert (done.code, done.err) == (0, "")
    assert ID.sub("ID", still(done.out)).splitlines()[-2:] == ["operation: ID", "retried: 1 chain"]
    assert statuses(place)[FAILED] == "pending"
    operation = ID.findall(done.out.splitlines()[-2])[0]
    shown = in_process("audit", "--url", place)
    assert dated(shown.out) == (
        "AT                         BY       ACTION      TARGET         CHAIN                                 REASON\n"
        f"DATE  on-call  bulk-retry  status:failed  {operation}  INC-42\n"
    )
    kept = in_process("delete", "chain-type:charge-card", "--yes", "--json", "--url", place)
    (found,) = kept.objects
    assert (kept.code, found["done"], found["changed"], found["unchanged"]) == (1, "deleted", 1, 1)
    assert set(statuses(place)) == {FAILED, READY, LATER, BLOCKED}
    assert in_process("cancel", "status:pending,blocked", "--yes", "--cascade", "--url", place).lines[-1] == (
        "cancelled: 4 chains"
    )
    assert DONE not in statuses(place)


def test_an_operation_is_shown_like_any_other_chain(place: str) -> None:
    (done,) = in_process("cancel", "type:bill", "--yes", "--json", "--url", place).objects
    shown = in_process("show", done["id"], "--url", place)
    assert shown.code == 0
    assert 'output      {"changed": 2, "unchanged": 0, "cascaded": 0}' in shown.lines
    (found,) = in_process("show", done["id"], "--json", "--url", place).objects
    assert found["output"] == {"changed": 2, "unchanged": 0, "cascaded": 0}
    assert "completed" in in_process("why", done["id"], "--url", place).lines[0]


async def test_with_a_worker_it_waits_for_it(url: str) -> None:
    await cause_incidents(url)
    async with open_client(url) as client, Worker(client, handlers, poll_interval=0.1) as worker:
        done = await asyncio.to_thread(queuert, "trigger", "type:bill", "--yes", "--json", "--url", url)
        (found,) = done.objects
        assert (done.code, done.err) == (1, "")
        assert (found["done"], found["changed"], found["unchanged"]) == ("triggered", 1, 1)
        (page,) = (await client.list_chain_jobs(found["id"])).items
        assert page.completed_by == worker.id


def test_it_says_why_it_waits_and_ctrl_c_leaves_it_to_others(place: str) -> None:
    assert in_process("pause", "queuert.bulk-cancel", "--by", "me", "--url", place).code == 0

    async def with_a_worker() -> str:
        async with open_client(place) as client, Worker(client, handlers, poll_interval=0.1):
            terminal = Terminal("cancel", "type:report", "--yes", "--url", place, columns=200)
            await asyncio.to_thread(terminal.read_until, "waiting: .*paused")
            terminal.send(signal.SIGINT)
            assert await asyncio.to_thread(terminal.end) == 130
            (operation,) = (await client.list_chains("queuert.bulk-cancel")).items
            assert f"not waited for: workers do the rest of {operation.id}" in terminal.text
            async with client.transaction() as tx:
                await client.resume(tx, "queuert.bulk-cancel")
            assert (await client.wait(operation, timeout=PATIENCE)).changed == 1
            return operation.id

    operation = asyncio.run(with_a_worker())
    assert statuses(place)[BLOCKED] == "cancelled"
    assert [found["chain_id"] for found in in_process("audit", operation, "--json", "--url", place).objects] == [
        operation
    ]


@pytest.mark.drivers
def test_the_audit(place: str) -> None:
    assert in_process("audit", "--url", place) == Ended(0, "nothing was recorded\n", "")
    assert in_process("cancel", LATER, "--yes", "--by", "me\x1b", "--reason", "late", "--url", place).code == 0
    assert in_process("delete", LATER, "--yes", "--by", "you", "--url", place).code == 0
    assert in_process("pause", "bill", "--by", "me", "--url", place).code == 0
    assert in_process("resume", "bill", "--by", "me", "--reason", "up again", "--url", place).code == 0
    shown = in_process("audit", "--limit", "3", "--url", place)
    assert dated(shown.out) == (
        "AT                         BY   ACTION  TARGET     CHAIN                                 REASON\n"
        "DATE  me   resume  type bill                                        up again\n"
        "DATE  me   pause   type bill\n"
        f"DATE  you  delete  bill       {LATER}\n"
        "there are more: these are the latest 3\n"
    )
    assert "me\\x1b" in in_process("audit", LATER, "--url", place).out
    objects = in_process("audit", LATER, "--json", "--url", place).objects
    assert [(each["action"], each["by"], each["reason"]) for each in objects] == [
        ("delete", "you", None), ("cancel", "me\x1b", "late"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["retry", "status:failed", FAILED], f"give ids or a filter, not both: '{FAILED}' is not a word of a filter"),
        (["retry", "queue:mail"], "no worker is known that serves queue mail"),
        (["retry", "status:done"], "status must be one of"),
        (["retry", "status:completed"], "retry changes chains that are failed"),
        (["delete", "type:queuert.bulk-retry"], "the library's own job types"),
        (["retry", "01a0", "--per-second", "5"], "--per-second is for a filter"),
        (["retry", "status:failed", "--per-second", "0"], "0 chains a second would never end"),
        (["retry", "status:failed", "--per-second", "1e-9"], "1e-9 chains a second are too few: 0.001 is the least"),
        (["retry", "status:failed", "created:2026-01-01T10:00.."], "is neither a time with its zone, like"),
        (["retry", "\x1b[2J"], "there is no job and no chain \\x1b[2J"),
        (["retry", "status:failed", "--cascade"], "unrecognized arguments: --cascade"),
        (["audit", "--limit", "0"], "not a number of 1 or more"),
    ],
)
def test_wrong_arguments(sqlite_url: str, arguments: list[str], error: str) -> None:
    asyncio.run(cause_incidents(sqlite_url))
    ended = in_process(*arguments, "--url", sqlite_url)
    assert (ended.code, ended.out) == (2, "")
    assert error in ended.err
