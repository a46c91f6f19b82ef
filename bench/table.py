"""A run as Markdown."""

from __future__ import annotations

from bench.results import Result, RowResult, Run
from bench.targets import verdicts


def markdown(run: Run) -> str:
    """The machine, a table of all rows, and what was to be reached."""
    judged = verdicts(run)
    lines = [
        f"{run.date[:10]}; {describe(run)}; medians of {run.rounds}.",
        "",
        "| work | measured | to reach |",
        "| --- | --- | --- |",
    ]
    for row in run.rows:
        wanted = "<br>".join(str(verdict) for verdict in judged if verdict.target.row == row.key)
        lines.append(f"| {row.title}, {unit(row)} | {'<br>'.join(cell(row, one) for one in row.results)} | {wanted} |")
    return "\n".join(lines) + "\n"


def describe(run: Run) -> str:
    machine = run.machine
    return (
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory']}, {machine['system']}, "
        f"Python {machine['python']}, PostgreSQL {run.server['version']} with fsync {run.server['fsync']} and "
        f"synchronous_commit {run.server['synchronous_commit']}"
    )


def unit(row: RowResult) -> str:
    return row.unit if row.figures == ["rate"] else f"{'/'.join(row.figures)} in {row.unit}"


def cell(row: RowResult, result: Result) -> str:
    if result.error is not None:
        return f"{result.name}: failed ({escape(result.error)})"
    figures = "/".join(number(result.median(figure)) for figure in row.figures)
    return f"**{figures}** {result.name}" if result.name == "queuert" else f"{figures} {result.name}"


def number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def escape(text: str) -> str:
    """What would end a table's cell."""
    return text.replace("|", "\\|").replace("\n", " ")
