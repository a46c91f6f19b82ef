"""`queuert top`: driven as a person would, on a SQLite file and in 80 columns."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from tests.behaviour.steps import Gate
from textual.pilot import Pilot
from textual.widgets import Input, Static, TextArea

import queuert
from queuert import Attempt, Client, EntryJob, Every, Handlers, JobError, Worker
from queuert.operate.top.app import Top
from queuert.operate.top.asking import Question
from queuert.operate.top.chain import ChainScreen
from queuert.operate.top.panes import Chains
from queuert.operate.top.tables import Table


class Charge(EntryJob[int], name="charge"):
    amount: int


handlers = Handlers[Any](max_attempts=1)


@handlers.handles(Charge)
async def charge(attempt: Attempt[Charge]) -> int:
    if attempt.job.amount < 0:
        raise JobError("NEGATIVE", "[red]no[/red] such amount\x1b[2J")
    return attempt.job.amount


@pytest.fixture
async def client(sqlite_url: str) -> AsyncIterator[Client[Any]]:
    async with queuert.connect(sqlite_url, jobs=[Charge], poll_interval=0.05) as client:
        for amount in (7, -1):
            await client.submit(Charge(amount=amount))
        async with Worker(client, handlers) as worker:
            await worker.drain()
        yield client


@pytest.fixture
async def pilot(client: Client[Any], sqlite_url: str) -> AsyncIterator[Pilot[None]]:
    async with (
        queuert.connect(sqlite_url, jobs=[], migrate=False) as own,
        Top(own, "ann", "jobs.db").run_test(size=(80, 24)) as pilot,
    ):
        await settled(pilot)
        yield pilot


async def settled(pilot: Pilot[None]) -> None:
    """What was asked for is shown. A question may be waiting for its answer."""
    await pilot.pause()
    while any(worker.is_running for worker in pilot.app.workers if worker.group in ("look", "filter", "operations")):
        await pilot.pause()
    await pilot.pause()


async def changed(pilot: Pilot[None]) -> None:
    """What was confirmed is done."""
    while any(worker.is_running for worker in pilot.app.workers if worker.group == "change"):
        await pilot.pause()
    await settled(pilot)


async def press(pilot: Pilot[None], *keys: str) -> None:
    await pilot.press(*keys)
    await settled(pilot)


def shown(pilot: Pilot[None], name: str) -> str:
    return str(pilot.app.screen.query_one(name, Static).content)


def rows(pilot: Pilot[None], name: str) -> list[str]:
    table = pilot.app.query_one(name, Table)
    return [" | ".join(str(cell) for cell in table.get_row_at(place)) for place in range(table.row_count)]


async def failed(client: Client[Any]) -> Any:
    (chain,) = (await client.list_chains(status="failed")).items
    return chain


async def test_the_overview_says_what_needs_attention(pilot: Pilot[None]) -> None:
    assert "✗ 1 charge failed" in shown(pilot, "#attention")
    assert rows(pilot, "#types")[0].startswith("charge | 0 | 0 | 0 | 1")


async def test_a_failed_chain_is_found_read_and_repaired(pilot: Pilot[None], client: Client[Any]) -> None:
    chain = await failed(client)
    await press(pilot, "slash", *"status:failed", "enter")
    assert [chain.id in row for row in rows(pilot, "#chains")] == [True]
    await press(pilot, "enter")
    assert isinstance(pilot.app.screen, ChainScreen)
    text = shown(pilot, "#chain")
    # What comes from the database is neither markup nor an order to the terminal.
    assert "[red]no[/red] such amount\\x1b[2J" in text
    assert "→" in text  # why, and what to do
    await press(pilot, "e")
    await pilot.pause()
    assert isinstance(pilot.app.screen, Question)
    pilot.app.screen.query_one("#value", TextArea).text = '{"amount": 5}'
    pilot.app.screen.query_one("#reason", Input).focus()
    await pilot.press("enter")
    assert isinstance(pilot.app.screen, Question), "without a reason, nothing is changed"
    await pilot.press(*"typo", "enter")
    await changed(pilot)
    async with Worker(client, handlers) as worker:
        await worker.drain()
    assert await client.wait(chain, Charge) == 5
    (record,) = (await client.list_audit()).items
    assert (record.by, record.reason, record.action) == ("ann", "typo", "retry")


async def fill_in(pilot: Pilot[None], **fields: str) -> None:
    """Answer the question that is shown."""
    await pilot.pause()
    assert isinstance(pilot.app.screen, Question)
    for name, value in fields.items():
        pilot.app.screen.query_one(f"#{name}", Input).value = value
    pilot.app.screen.query_one("#reason", Input).focus()
    await pilot.press("enter")
    await pilot.pause()


async def last_record(client: Client[Any]) -> tuple[str, str, str | None, str | None]:
    record = (await client.list_audit(limit=1)).items[0]
    return record.action, record.target, record.by, record.reason


async def test_enter_on_a_type_shows_its_failed_chains_and_the_newcomer_goes_on(
    pilot: Pilot[None], client: Client[Any]
) -> None:
    await press(pilot, "enter")
    await settled(pilot)
    assert pilot.app.query_one("#filter", Input).value == "status:failed type:charge"
    assert len(rows(pilot, "#chains")) == 1
    await press(pilot, "enter")
    assert isinstance(pilot.app.screen, ChainScreen)
    assert "client." not in shown(pilot, "#chain"), "people press keys"


async def test_an_input_that_is_refused_can_be_corrected(pilot: Pilot[None], client: Client[Any]) -> None:
    await press(pilot, "slash", *"status:failed", "enter")
    await press(pilot, "e")
    await pilot.pause()
    pilot.app.screen.query_one("#value", TextArea).text = '{"amount": 5'
    await fill_in(pilot, reason="typo")
    while not isinstance(pilot.app.screen, Question):
        await pilot.pause()
    await pilot.pause()
    assert "not JSON" in shown(pilot, "#problem")
    assert pilot.app.screen.query_one("#value", TextArea).text == '{"amount": 5'
    pilot.app.screen.query_one("#value", TextArea).text = '{"amount": 5}'
    await fill_in(pilot)
    await changed(pilot)
    assert await last_record(client) == ("retry", "charge", "ann", "typo")


async def test_limits_are_changed_undone_paused_and_resumed(pilot: Pilot[None], client: Client[Any]) -> None:
    async with client.transaction() as tx:
        await client.set_limit(tx, "api", concurrency=3)
    await press(pilot, "6")
    assert rows(pilot, "#limits") == ["api | all keys | 0 of 3 each |  |  | 1 | changed by hand"]
    await press(pilot, "l")
    await fill_in(pilot, **{"field-concurrency": "many", "reason": "VIP"})
    while not isinstance(pilot.app.screen, Question):
        await pilot.pause()
    await fill_in(pilot, **{"field-key": "acme", "field-concurrency": "5", "field-rate": "10/1"})
    await changed(pilot)
    assert await last_record(client) == ("set_limit", "limit api, key acme", "ann", "VIP")
    assert rows(pilot, "#limits")[1] == "api | acme | 0 of 5 | 0 | 10/1 | 1 | changed by hand"
    await press(pilot, "down")
    for action, key in (("pause", "p"), ("resume", "p"), ("clear_limit", "u")):
        await press(pilot, key)
        await fill_in(pilot, reason=action)
        await changed(pilot)
        assert (await last_record(client))[::3] == (action, action)
        assert len(await client.list_pauses()) == (action == "pause")


async def test_schedules_are_paused_and_fired_with_a_reason(pilot: Pilot[None], client: Client[Any]) -> None:
    async with client.transaction() as tx:
        await client.put_schedule(tx, "nightly", Every(timedelta(days=1)), Charge(amount=1))
    await press(pilot, "5")
    for action, key in (("pause", "p"), ("resume", "p"), ("trigger", "f")):
        await press(pilot, key)
        await fill_in(pilot, reason=f"INC {action}")
        await changed(pilot)
        assert await last_record(client) == (action, "schedule nightly", "ann", f"INC {action}")


async def test_a_paused_schedule_shows_no_next_tick(pilot: Pilot[None], client: Client[Any]) -> None:
    async with client.transaction() as tx:
        await client.put_schedule(tx, "nightly", Every(timedelta(days=1)), Charge(amount=1))
        await client.pause_schedule(tx, "nightly")
    await press(pilot, "5")
    assert rows(pilot, "#schedules") == ["nightly | every 1 day, 0:00:00 | paused |  | "]


LONG = "reconcile-the-ledger-of-every-partner-with-the-statements-of-the-bank"


async def test_one_long_name_takes_no_count_from_the_screen(pilot: Pilot[None], sqlite_url: str) -> None:
    """In 80 columns all columns of numbers are seen, and more of the name if there is more room."""

    class Reconcile(EntryJob[None], name=LONG):
        pass

    widths: list[int] = []
    async with queuert.connect(sqlite_url, jobs=[Reconcile], migrate=False) as other:
        await other.submit(Reconcile())
    top = pilot.app
    assert isinstance(top, Top)
    while len(rows(pilot, "#types")) < 2:
        top.look()
        await settled(pilot)
    table = pilot.app.query_one("#types", Table)
    for width in (80, 120, 80):
        await pilot.resize_terminal(width, 24)
        await settled(pilot)
        assert table.virtual_size.width <= table.size.width
        assert LONG in "".join(rows(pilot, "#types"))
        widths.append(table.ordered_columns[0].width)
    assert widths[0] == widths[2] < widths[1]


async def test_a_wrong_filter_says_so(pilot: Pilot[None]) -> None:
    await press(pilot, "slash", *"colour:red", "enter")
    assert "colour" in shown(pilot, "#filter-problem")
    await press(pilot, *("backspace",) * 10, *"status:completed", "enter")
    assert [row.startswith("✓ completed") for row in rows(pilot, "#chains")] == [True]


async def test_all_that_match_are_changed_after_the_plan(pilot: Pilot[None], client: Client[Any]) -> None:
    await press(pilot, "slash", *"status:failed", "enter")
    await press(pilot, "D")
    await pilot.pause()
    assert isinstance(pilot.app.screen, Question)
    pilot.app.screen.query_one("#reason", Input).value = "old"
    await pilot.press("enter")
    await changed(pilot)
    assert (await client.list_chains(status="failed")).items == []
    assert (await client.list_audit()).items[0].by == "ann"


async def test_a_type_is_paused_and_resumed(pilot: Pilot[None], client: Client[Any]) -> None:
    async with Worker(client, handlers):
        await press(pilot, "4")
        while len(rows(pilot, "#queues")) < 3:  # until the worker has registered
            await press(pilot, "4")
            pilot.app.look()  # type: ignore[attr-defined]
        await press(pilot, "down", "down")
        assert pilot.app.query_one("#queues", Table).chosen == "type:charge"
        for paused in (True, False):
            await press(pilot, "p")
            await pilot.pause()
            pilot.app.screen.query_one("#reason", Input).value = "maintenance"
            await pilot.press("enter")
            await changed(pilot)
            assert [str(pause.target) for pause in await client.list_pauses()] == ["type charge"] * paused
            await settled(pilot)


async def test_a_database_that_is_away_is_said_and_survived(pilot: Pilot[None]) -> None:
    await pilot.app.client.close()  # type: ignore[attr-defined]
    await press(pilot, "3")
    assert "not up to date" in str(pilot.app.query_one("#bar", Static).content)


async def test_a_chain_that_is_closed_while_it_is_read_is_not_shown(
    pilot: Pilot[None], client: Client[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    top = pilot.app
    assert isinstance(top, Top)
    gate, read = Gate(), top.client.attempts

    async def late(job: Any) -> Any:
        await gate()
        return await read(job)

    monkeypatch.setattr(top.client, "attempts", late)
    await press(pilot, "slash", *"status:failed", "enter")
    await pilot.press("enter")
    await gate.arrival()
    await pilot.press("escape")
    gate.open()
    await settled(pilot)
    assert not isinstance(top.screen, ChainScreen)
    assert "not up to date" not in shown(pilot, "#bar")


async def test_keys_of_other_tabs_do_nothing(pilot: Pilot[None], client: Client[Any]) -> None:
    await press(pilot, "1", "r", "D", "p", "f", "e")
    assert not isinstance(pilot.app.screen, Question)
    assert pilot.app.query_one(Chains).where is not None
    assert (await client.list_audit()).items == []
