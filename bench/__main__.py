"""The benchmark: python -m bench [--quick] [--only ROW ...] [--rounds 3]

Every contender does the same work on the same server in the same run. Within a row they take turns,
round by round. The medians are shown. Results go to bench/results/.
`python -m bench.compare A.json B.json` compares two of them.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from bench import machine
from bench.chart import svg
from bench.measure import Entry
from bench.process import ContenderFailed
from bench.results import Result, RowResult, Run
from bench.roster import CONTENDERS, add_checkout
from bench.rows import Plan, Row, against
from bench.server import Server, server
from bench.table import markdown, number
from bench.targets import verdicts

RESULTS = Path(__file__).resolve().parent / "results"
console = Console()


def main() -> None:
    options = _options()
    chosen = [
        row for row in Plan(quick=options.quick, scale=options.scale).rows() if row.key in (options.only or [row.key])
    ]
    if options.against is not None:
        add_checkout(options.against.resolve())
        chosen = [against(row) for row in chosen]
    if not chosen:
        raise SystemExit(f"there is no such row. The rows are: {', '.join(row.key for row in Plan().rows())}")
    name = options.name or ("quick" if options.quick else "some" if options.only else "latest")

    def keep(run: Run) -> None:
        run.save(RESULTS / f"{name}.json")
        (RESULTS / f"{name}.md").write_text(markdown(run), "utf-8")
        (RESULTS / f"{name}.svg").write_text(svg(run), "utf-8")

    with server() as its:
        run = asyncio.run(everything(its, chosen, options.rounds, keep))
    _show(run)
    console.print(f"\nWritten: bench/results/{name}.json, .md and .svg")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="run for two minutes: queuert, pgqueuer and plain SQL")
    parser.add_argument(
        "--only", nargs="*", metavar="ROW", help=f"some rows: {', '.join(row.key for row in Plan().rows())}"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="the part of the jobs to run, for a trial")
    parser.add_argument(
        "--against",
        type=Path,
        metavar="CHECKOUT",
        help="measure only queuert, in turns with the code of another checkout",
    )
    parser.add_argument("--name", help="the name of the result files (default: latest, quick, or some)")
    return parser.parse_args()


async def everything(
    its: Server, chosen: Sequence[Row], rounds: int, keep: Callable[[Run], None] = lambda _: None
) -> Run:
    """Measure all rows. `keep` is called after each row, so that no result is lost.

    If a contender fails, its error is shown in its row, and the run continues.
    """
    found = Run(datetime.now(UTC).isoformat(timespec="seconds"), machine.describe(), await its.describe(), rounds, [])
    with _progress() as progress:
        total = sum(len(row.entries) * (1 if row.once else rounds) for row in chosen)
        bar = progress.add_task("installing", total=total)
        missing = _install({entry.contender for row in chosen for entry in row.entries})
        for name, reason in missing.items():
            progress.console.print(f"{name} is not measured: {reason}")
        for row in chosen:
            results = [(entry, Result(entry.name, _settings(entry), entry.jobs)) for entry in row.entries]
            found.rows.append(
                RowResult(row.key, row.title, row.unit, list(row.figures), [result for _, result in results])
            )
            for _ in range(1 if row.once else rounds):
                for entry, result in results:
                    progress.update(bar, description=f"{row.key}: {entry.name}")
                    await _measure(its, entry, result, missing)
                    progress.advance(bar)
            await its.drop_kept()
            keep(found)
    return found


def _install(names: set[str]) -> dict[str, str]:
    """Why some contenders cannot be measured."""
    missing: dict[str, str] = {}
    for name in CONTENDERS:
        if name in names:
            try:
                CONTENDERS[name].install()
            except ContenderFailed as error:
                missing[name] = str(error)
    return missing


async def _measure(its: Server, entry: Entry, result: Result, missing: dict[str, str]) -> None:
    if entry.contender in missing:
        result.error = missing[entry.contender]
    if result.error is not None:
        return
    try:
        result.rounds.append(await entry.measure(its, entry))
    except Exception as error:
        result.error = f"{type(error).__name__}: {error}" if not isinstance(error, ContenderFailed) else str(error)


def _settings(entry: Entry) -> str:
    return ", ".join(filter(None, [CONTENDERS[entry.contender].settings, entry.settings]))


def _show(run: Run) -> None:
    for row in run.rows:
        console.print(f"\n[bold]{row.title}[/] ({row.unit})")
        for result in row.results:
            figures = "  ".join(f"{number(result.median(figure)):>9}" for figure in row.figures)
            console.print(f"  {figures}  {result.name}" + (f"  [red]{result.error}" if result.error else ""))
        for verdict in verdicts(run):
            if verdict.target.row == row.key:
                console.print(f"  [{'green' if verdict.reached else 'yellow'}]{verdict}")


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description:<40}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        refresh_per_second=2,  # drawing would take processor time from the measurement
        transient=True,
    )


if __name__ == "__main__":
    main()
