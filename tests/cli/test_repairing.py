"""`queuert retry ID --input` and `queuert set-priority`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.behaviour.steps import PATIENCE
from tests.cli.incidents import BLOCKED, DONE, FAILED, JOBS, LATER, READY, Report, cause_incidents, handlers
from tests.cli.running import Ended, in_process, queuert

import queuert as library
from queuert import Client, Worker

APP = "tests.cli.programs.billing"


@pytest.fixture
def place(url: str) -> str:
    asyncio.run(cause_incidents(url))
    return url


def read(url: str, chain: str) -> Any:
    with library.connect_sync(url, jobs=JOBS) as client:
        return client.list_chain_jobs(chain, order="desc").items[0]


@pytest.mark.drivers
def test_a_corrected_input(place: str) -> None:
    arguments = ["retry", FAILED, "--input", '{"order": 7}', "--url", place]
    plan = in_process(*arguments, "--plan")
    assert plan == Ended(0, f'{FAILED}  charge-card  failed\n- {{"order": 13}}\n+ {{"order": 7}}\n', "")
    refused = in_process(*arguments)
    assert (refused.code, refused.err) == (
        1, "queuert retry: not confirmed: there is no terminal to ask on, so give --yes\n",
    )  # fmt: skip
    assert read(place, FAILED).status == "failed"
    done = queuert(*arguments, "--yes", "--by", "on-call", "--reason", "INC-42")
    assert (done.code, done.lines[-1], done.err) == (0, "retried: 1 chain", "")
    job = read(place, FAILED)
    assert (job.status, job.input, job.attempt_number) == ("pending", {"order": 7}, 0)
    (record,) = in_process("audit", FAILED, "--json", "--url", place).objects
    assert (record["by"], record["action"], record["details"]) == ("on-call", "retry", {"input": True})
    again = in_process(*arguments, "--yes")
    assert (again.code, again.out) == (1, "")
    assert "its status is 'pending', not 'failed', 'cancelled' or 'expired'" in again.err


def test_a_cancelled_one_and_fields_that_are_new(place: str) -> None:
    assert in_process("cancel", LATER, "--yes", "--url", place).code == 0
    arguments = ["retry", LATER, "--input", '{"note": "x", "nota": "y\\u001b"}', "--json", "--url", place]
    (plan,) = in_process(*arguments, "--plan").objects
    assert (plan["before"], plan["input"], plan["new_fields"]) == (
        {"note": ""},
        {"note": "x", "nota": "y\x1b"},
        ["nota"],
    )
    (done,) = in_process(*arguments, "--yes").objects
    assert done == {"id": LATER, "type": "bill", "status": "pending", "done": "retried"}
    text = in_process("retry", DONE, "--input", "{}", "--plan", "--url", place)
    assert text.code == 1
    assert "its status is 'completed'" in text.err


def test_the_application_checks_it(place: str) -> None:
    def retry(given: str, *arguments: str) -> Ended:
        return in_process("retry", FAILED, "--input", given, "--app", f"{APP}:client", "--url", place, *arguments)

    missing = retry("{}", "--yes")
    assert (missing.code, missing.out) == (2, "")
    assert "missing required field `order`" in missing.err
    unknown = retry('{"order": 7, "oder": 8}', "--yes")
    assert unknown.code == 2
    assert "Charge has no field 'oder': its fields are order" in unknown.err
    assert read(place, FAILED).status == "failed"
    assert retry('{"order": 7}', "--yes").code == 0
    elsewhere = in_process("retry", BLOCKED, "--input", "{}", "--app", f"{APP}:nothing", "--url", place)
    assert (elsewhere.code, elsewhere.out) == (2, "")


@pytest.mark.parametrize("app", [(), ("--app", f"{APP}:client")])
def test_chains_that_it_waited_for_stay(place: str, app: tuple[str, ...]) -> None:
    with library.connect_sync(place, jobs=JOBS) as client, client.transaction() as tx:
        done = client.get_chain(DONE, tx=tx)
        assert done is not None
        report = client.start(tx, Report(of=done))
        client.cancel(tx, report)
    for given in ("{}", f'{{"of": "{FAILED}"}}', '{"of": null}'):
        refused = in_process("retry", report.id, "--input", given, *app, "--yes", "--url", place)
        assert refused.code == 2, given
        assert refused.out == ""
    kept = in_process("retry", report.id, "--input", f'{{"of": "{DONE}"}}', *app, "--yes", "--url", place)
    assert kept.code == 0, kept.err


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([FAILED, "--input", "{"], "the input is not JSON"),
        ([FAILED, "--input", "[7]"], 'the input of a job is a JSON object, like {"order": 7}, got [7]'),
        ([FAILED, "--input", ""], "the input is not JSON"),
        ([FAILED, "--input", '{"order": NaN}'], "the input is not JSON"),
        ([FAILED, "--input", '{"order": 1e999}'], "the input"),
        ([FAILED, "--input", '{"order": "a\\u0000"}'], "a text with a NUL character cannot be stored"),
        ([FAILED, "--input", '{"order": "\\ud800"}'], "the input is not JSON"),
        ([FAILED, "--input", "[" * 100_000], "the input is not JSON"),
        ([FAILED, READY, "--input", "{}"], "--input is for one chain, and these are 2"),
        (["status:failed", "--input", "{}"], "--input is for one chain: give its id instead of a filter"),
        ([FAILED, "--app", f"{APP}:client"], "--app checks an input: give --input, too"),
        ([FAILED, "--input", "{}", "--app", "nowhere:client"], "there is no module 'nowhere'"),
    ],
)
def test_wrong_inputs(sqlite_url: str, arguments: list[str], error: str) -> None:
    asyncio.run(cause_incidents(sqlite_url))
    ended = in_process("retry", *arguments, "--yes", "--url", sqlite_url)
    assert (ended.code, ended.out) == (2, "")
    assert error in ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.drivers
def test_priorities(place: str) -> None:
    done = queuert("set-priority", "-5", READY, BLOCKED, "--yes", "--by", "me", "--url", place)
    assert (done.code, done.err, done.lines[-1]) == (0, "", "changed: 2 chains")
    assert "set priority: 2 chains (1 bill, 1 report)" in done.lines
    assert [read(place, chain).priority for chain in (READY, LATER, BLOCKED)] == [-5, 100, -5]
    done = in_process("set-priority", "7", "type:bill", "--yes", "--json", "--url", place)
    (found,) = done.objects
    assert (done.code, found["done"], found["changed"]) == (0, "changed", 2)
    assert [read(place, chain).priority for chain in (READY, LATER, BLOCKED)] == [7, 7, -5]
    assert in_process("set-priority", "7", DONE, "--yes", "--url", place) == Ended(0, "no chain matches\n", "")
    for wrong, error in {
        "high": "'high' is not a whole number",
        "99999999999": "priority must be between",
    }.items():
        refused = in_process("set-priority", wrong, READY, "--url", place)
        assert (refused.code, error in refused.err) == (2, True)


def test_narrow_terminals(place: str) -> None:
    for arguments in (["ls"], ["cancel", FAILED, READY, "--plan"], ["retry", "status:failed", "--plan"]):
        shown = in_process_with(60, *arguments, "--url", place)
        rows = [line for line in shown.lines if line.startswith(("ID", "01"))]
        assert len(rows) >= 2
        assert max(map(len, rows)) <= 60
    cut = in_process_with(50, "ls", "status:blocked", "--url", place).lines[1].split()[0]
    assert cut.endswith("…")
    assert in_process("why", cut, "--url", place).code == 0  # as it was copied


def in_process_with(columns: int, *arguments: str) -> Ended:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(columns))
        return in_process(*arguments)


def test_ids_in_upper_case(place: str) -> None:
    shown = in_process("cancel", LATER.upper(), "--plan", "--url", place)
    assert (shown.code, LATER in shown.out) == (0, True)
    assert in_process("show", LATER[:4].upper(), "--url", place).code == 0


@pytest.mark.drivers
async def test_all_chains_of_a_queue(url: str) -> None:
    """The workers tell which types are in it."""
    await cause_incidents(url)
    refused = await asyncio.to_thread(in_process, "retry", "queue:default", "--yes", "--url", url)
    assert (refused.code, refused.out) == (2, "")
    assert "no worker is known that serves queue default" in refused.err
    async with library.connect(url, jobs=JOBS) as client, Worker(client, handlers):
        await worker_is_known(client)
        plan = await asyncio.to_thread(in_process, "retry", "queue:default", "--plan", "--url", url)
        assert "retry: 1 chain (1 charge-card)" in plan.lines
        done = await asyncio.to_thread(in_process, "cancel", "queue:default", "--yes", "--url", url)
        assert done == Ended(0, "no chain matches\n", "")  # bill and report have no handler there


async def worker_is_known(client: Client[Any]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await client.list_workers():
            await asyncio.sleep(0.01)
