"""A small run of our own contender, from end to end; and one that fails."""

from dataclasses import replace

import pytest
from bench.__main__ import everything
from bench.compare import compare_checkouts
from bench.environments import ROOT
from bench.measure import Entry, Figures, by_itself, drain, embedded, pick_up
from bench.roster import BARE, OURS, PLAIN, PLAIN_SQLITE, add_checkout
from bench.rows import BY_SUBMIT, Plan, Row, against
from bench.server import Server
from tests.support.postgres import Databases


@pytest.mark.timeout(1200)  # six programs, one after the other
async def test_our_contender_and_plain_sql_are_measured_in_one_run(postgres: Databases) -> None:
    plain = Entry(PLAIN, by_itself, 200, options={"clients": 2, "batch": 10, "stored": 200})
    drained = Row(
        "drain-1", "drain", [Entry(OURS, drain, 200), Entry(OURS, drain, 200, processes=2, label="two"), plain]
    )
    picked_up = Row("pick-up", "pick-up", [Entry(OURS, pick_up, 5, work="pick-up")], ("p50", "p99"), "ms")

    run = await everything(Server(postgres.url), [drained, picked_up], rounds=1)

    assert [result.error for row in run.rows for result in row.results] == [None] * 4
    assert [(run.median("drain-1", name) or 0) > 0 for name in (OURS, "two", PLAIN)] == [True] * 3
    p50, p99 = (run.median("pick-up", OURS, figure) for figure in ("p50", "p99"))
    assert p50 is not None
    assert p99 is not None
    assert 0 < p50 <= p99
    assert run.server["synchronous_commit"] == "on"


@pytest.mark.soak
async def test_our_statement_alone(postgres: Databases) -> None:
    rows = [
        Row(full.key, full.title, [replace(entry, jobs=20) for entry in full.entries if entry.contender == BARE])
        for full in (Plan().start_one(), Plan().start_at_once(16))
    ]

    run = await everything(Server(postgres.url), rows, rounds=1)

    assert {result.name: result.error for row in run.rows for result in row.results if result.error} == {}
    assert [len(row.results) for row in run.rows] == [2, 1]


@pytest.mark.soak
async def test_the_pick_up_of_what_is_submitted(postgres: Databases) -> None:
    entry = next(entry for entry in Plan().pick_up().entries if entry.name == BY_SUBMIT)
    row = Row("pick-up", "pick-up", [replace(entry, jobs=3)], ("p50", "p99"), "ms")

    run = await everything(Server(postgres.url), [row], rounds=1)

    assert run.rows[0].results[0].error is None
    assert (run.median("pick-up", BY_SUBMIT, "p50") or 0) > 0


async def test_a_contender_that_fails_stands_in_its_row_and_the_run_goes_on(postgres: Databases) -> None:
    async def fine(server: Server, entry: Entry) -> Figures:
        return {"rate": 7.0}

    bad = Entry(PLAIN, by_itself, 10, work="no-such-work")
    row = Row("drain-1", "drain", [bad, Entry(OURS, fine, 1)])

    run = await everything(Server(postgres.url), [row], rounds=2)

    failed, worked = run.rows[0].results
    assert failed.error is not None
    assert "no-such-work" in failed.error
    assert worked.error is None
    assert worked.median("rate") == 7.0


def test_rows_have_names_of_their_own_and_quick_ones_are_smaller() -> None:
    full, quick = Plan().rows(), Plan(quick=True).rows()

    assert len({row.key for row in full}) == len(full)
    for row in full:
        names = [entry.name for entry in row.entries]
        assert len(set(names)) == len(names), row.key
    sizes = {entry.name: entry.jobs for entry in full[0].entries}
    assert all(entry.jobs <= sizes[entry.name] for entry in quick[0].entries)


@pytest.mark.soak
async def test_every_row_can_be_run_with_what_needs_no_other_library(postgres: Databases) -> None:
    ours = (OURS, PLAIN, PLAIN_SQLITE)
    kept: list[int] = []
    plan = Plan(scale=0.001).rows()
    alone = [replace(row, entries=[entry for entry in row.entries if entry.contender in ours]) for row in plan]

    run = await everything(Server(postgres.url), alone, rounds=1, keep=lambda found: kept.append(len(found.rows)))

    assert [(row.key, result.error) for row in run.rows for result in row.results if result.error] == []
    assert kept == list(range(1, len(alone) + 1))


async def test_another_checkout_is_measured_in_turns_with_this_one(postgres: Databases) -> None:
    add_checkout(ROOT)  # this one, as if it were another
    row = against(Row("sqlite", "drain on SQLite", [Entry(OURS, embedded, 100), Entry(PLAIN_SQLITE, embedded, 100)]))

    run = await everything(Server(postgres.url), [row], rounds=2)

    assert [(result.name, result.error, len(result.rounds)) for result in run.rows[0].results] == [
        (OURS, None, 2),
        (f"{OURS}, before", None, 2),
    ]
    header, _, only = compare_checkouts(run).splitlines()
    assert header == "| work | before | after | ratio |"
    assert only.startswith("| drain on SQLite · queuert | ")
