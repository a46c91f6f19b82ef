"""What a run found is kept, compared, judged and shown as it was."""

from pathlib import Path
from xml.etree import ElementTree

import pytest
from bench.chart import svg
from bench.compare import compare
from bench.environments import ROOT
from bench.publish import BEGIN, END, between_marks, texts
from bench.results import Result, RowResult, Run
from bench.table import against, details, markdown, matrix
from bench.targets import TARGETS, verdicts

MACHINE = {
    "processor": "a processor",
    "cores": "2",
    "memory": "8 GB",
    "system": "Linux",
    "python": "3.11",
    "commit": "abc",
    "fsync": "1 ms",
}
SERVER = {"version": "18", "fsync": "on", "synchronous_commit": "on"}


def a_result(name: str, *values: float, error: str | None = None) -> Result:
    return Result(name, "as it comes", 100, [{"rate": value} for value in values], error)


def a_run(*rows: RowResult) -> Run:
    return Run("2026-01-02T03:04:05+00:00", MACHINE, SERVER, 3, list(rows))


def a_row(key: str, *results: Result, figures: tuple[str, ...] = ("rate",), unit: str = "jobs/s") -> RowResult:
    return RowResult(key, f"the work {key}", unit, list(figures), list(results))


def test_a_run_comes_back_from_its_file(tmp_path: Path) -> None:
    run = a_run(a_row("drain-1", a_result("queuert", 1.0, 2.0), a_result("pgqueuer", error="it broke")))

    run.save(tmp_path / "deep" / "run.json")

    assert Run.load(tmp_path / "deep" / "run.json") == run


def test_the_median_of_the_rounds_counts_and_a_failed_contender_has_none() -> None:
    run = a_run(a_row("drain-1", a_result("queuert", 10, 1000, 30), a_result("pgqueuer", 10, error="it broke")))

    assert run.median("drain-1", "queuert") == 30
    assert run.median("drain-1", "pgqueuer") is None
    assert run.median("drain-1", "nobody") is None
    assert run.median("no-such-row", "queuert") is None


def test_ratios_are_reached_or_not_or_were_not_measured() -> None:
    run = a_run(a_row("drain-1", a_result("queuert", 30_000), a_result("pgqueuer", 10_000)))

    said = [str(verdict) for verdict in verdicts(run)]

    assert "≥ 2 × pgqueuer: 3.00, reached" in said
    assert "≥ 1.5 × graphile-worker: not measured" in said
    run.rows[0].results[0].rounds = [{"rate": 19_999}]
    assert "≥ 2 × pgqueuer: 2.00, not reached" in [str(verdict) for verdict in verdicts(run)]


def test_where_less_is_better_the_best_peer_is_the_smallest() -> None:
    fast, slow = ({"p50": 2.0, "p99": 4.0}, {"p50": 20.0, "p99": 40.0})
    results = [Result("queuert", "", 1, [{"p50": 1.0, "p99": 8.0}])]
    results += [Result("queuert, submit", "", 1, [{"p50": 0.5, "p99": 4.0}])]
    results += [Result("pgqueuer", "", 1, [slow]), Result("graphile-worker", "", 1, [fast])]
    run = a_run(a_row("pick-up", *results, figures=("p50", "p99"), unit="ms"))

    found = {verdict.target.text: (verdict.ratio, verdict.reached) for verdict in verdicts(run)}
    assert found == {
        "the best peer, p50": (0.5, True),
        "the best peer, p99": (2.0, False),
        "the best peer, p50, by submit": (0.25, True),
        "the best peer, p99, by submit": (1.0, True),
    }


def test_every_scene_is_held_against_the_empty_table() -> None:
    scenes = [a_result("an empty table", 100), a_result("many completed", 90), a_result("many pending", 80)]
    run = a_run(a_row("growth", *scenes))

    assert [str(verdict) for verdict in verdicts(run)] == [
        "≥ 0.85 × an empty table, with many completed: 0.90, reached",
        "≥ 0.85 × an empty table, with many pending: 0.80, not reached",
    ]


def test_only_rows_that_were_run_are_judged() -> None:
    assert verdicts(a_run()) == []
    assert {target.row for target in TARGETS} > {"drain-1"}


def test_the_table_shows_figures_errors_and_verdicts() -> None:
    results = [a_result("queuert", 12_345.6), a_result("pgqueuer", error="no | such\nthing")]
    plain = [a_result("plain SQL, 100 at a time, 1 client", 10), a_result("plain SQL, 100 at a time, 4 clients", 20)]
    run = a_run(a_row("drain-1", *results, *plain), a_row("chain", a_result("queuert", 5)))

    table = markdown(run)

    assert "a processor, 2 cores, 8 GB, Linux" in table
    assert "| the work drain-1, jobs/s | **12,346** | failed | 20 |" in table
    assert "| the work chain, jobs/s | queuert (as it comes) | 100 | 5 |" in table
    assert "- the work drain-1: ≥ 2 × pgqueuer: not measured" in table
    assert "pgqueuer: no | such" in table


def test_a_table_of_a_run_without_peers_has_no_matrix() -> None:
    assert "**queuert**" not in markdown(a_run(a_row("chain", a_result("queuert", 5))))


def test_cells_hold_no_line_breaks_and_no_bars() -> None:
    row = a_row("drain-1", a_result("queu|ert", 1))
    row.title = "two\nlines"

    (line,) = [line for line in details(a_run(row)).splitlines() if "two" in line]

    assert line == "| two lines, jobs/s | queu\\|ert (as it comes) | 100 | 1 |"


def test_the_chart_is_well_formed_and_has_a_bar_for_everyone_who_was_measured() -> None:
    results = [a_result("queuert", 200), a_result("a < b & c", 100), a_result("pgqueuer", error="it broke")]
    run = a_run(a_row("drain-1", *results), a_row("drain-2", a_result("queuert", error="it broke")))

    drawing = ElementTree.fromstring(svg(run))

    bars = drawing.findall("{http://www.w3.org/2000/svg}rect")
    assert [(bar.get("class"), int(bar.get("width", "0"))) for bar in bars] == [("ours", 400), (None, 200)]
    assert "a < b & c" in [text.text for text in drawing.findall("{http://www.w3.org/2000/svg}text")]


def test_what_is_published_replaces_what_stood_between_the_marks() -> None:
    page = f"above\n{BEGIN}\nold\n{END}\nbelow\n"

    assert between_marks(page, "new") == f"above\n{BEGIN}\nnew\n{END}\nbelow\n"
    with pytest.raises(SystemExit, match="there must be a line"):
        between_marks("no marks", "new")


@pytest.mark.parametrize("page", ["README.md", "docs/benchmark.md", "docs/comparison/README.md"])
def test_the_pages_show_the_figures_of_the_last_run(page: str) -> None:
    run = Run.load(ROOT / "bench" / "results" / "latest.json")
    text = (ROOT / page).read_text("utf-8")

    between_marks(text, "new")
    # Targets may have changed since that run, so the long page is compared by its table.
    expected = matrix(run) if page == "docs/benchmark.md" else texts(run, "a drawing")[page]
    assert expected in text, "run python -m bench.publish"


def test_a_short_table_has_the_rows_that_were_asked_for_and_no_plain_sql() -> None:
    rows = [a_row(key, a_result("queuert", 2), a_result("pgqueuer", 1), a_result("plain SQL", 9)) for key in "ab"]

    assert matrix(a_run(*rows), ["b"]).splitlines() == [
        "| work | **queuert** | pgqueuer |",
        "| --- | ---: | ---: |",
        "| the work b, jobs/s | **2** | 1 |",
    ]


def test_a_peer_is_shown_beside_ours() -> None:
    run = a_run(
        a_row("start-one", a_result("queuert", 1000), a_result("pgqueuer", 3000)),
        a_row("drain-1", a_result("queuert", 9000), a_result("pgqueuer", error="it broke")),
    )

    assert against(run, "pgqueuer") == (
        "With one process, pgqueuer starts 3,000 single jobs a second and drains –; queuert starts 1,000 and drains "
        "9,000."
    )


def test_comparing_shows_the_ratio_of_what_both_have() -> None:
    before = a_run(a_row("drain-1", a_result("queuert", 100), a_result("pgqueuer", 50)))
    after = a_run(
        a_row("drain-1", a_result("queuert", 150), a_result("pgqueuer", error="it broke")),
        a_row("drain-2", a_result("queuert", 200)),
    )

    assert compare(before, after).splitlines()[2:] == ["| the work drain-1 | queuert | 100 | 150 | 1.50 |"]
