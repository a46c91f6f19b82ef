"""A run as Markdown: a matrix of the rows with several libraries, and all results line by line."""

from __future__ import annotations

from collections.abc import Sequence

from bench.results import Result, RowResult, Run
from bench.roster import OURS, PLAIN
from bench.targets import verdicts

PEERS = ("pgqueuer", "graphile-worker", "pg-boss", "procrastinate")


def markdown(run: Run) -> str:
    """Everything: the machine, the matrix, all results, the targets, and the failures."""
    parts = [caption(run), matrix(run), details(run), "Targets:", targets(run)]
    failed = [f"- {row.title}: {one.name}: {one.error}" for row in run.rows for one in row.results if one.error]
    if failed:
        parts += ["Not measured:", "\n".join(failed)]
    return "\n\n".join(part for part in parts if part) + "\n"


def caption(run: Run) -> str:
    machine = run.machine
    return (
        f"Measured on {run.date[:10]}, revision {machine['commit']}: {machine['processor']}, {machine['cores']} cores, "
        f"{machine['memory']}, {machine['system']}, Python {machine['python']}, PostgreSQL {run.server['version']} "
        f"with fsync {run.server['fsync']} and synchronous_commit {run.server['synchronous_commit']}; an fsync takes "
        f"{machine['fsync']}. Medians of {run.rounds}."
    )


def short_caption(run: Run) -> str:
    return (
        f"Measured on {run.date[:10]} with {run.machine['cores']} cores, Python {run.machine['python']} and "
        f"PostgreSQL {run.server['version']}. Medians of {run.rounds}."
    )


def against(run: Run, peer: str) -> str:
    """Two figures of a peer beside ours. The sentence fits whichever of the two is faster."""
    start, drain = ([number(run.median(key, name)) for name in (peer, OURS)] for key in ("start-one", "drain-1"))
    return (
        f"With one process, {peer} starts {start[0]} single jobs a second and drains {drain[0]}; {OURS} starts "
        f"{start[1]} and drains {drain[1]}."
    )


def matrix(run: Run, keys: Sequence[str] | None = None) -> str:
    """The rows with other libraries, one column for each.

    Our figure is bold where no other library is better. The last column is the best of plain SQL.
    With `keys`, only these rows are shown, and plain SQL is not.
    """
    shared = [row for row in run.rows if any(result.name in PEERS for result in row.results)]
    shared = [row for row in shared if keys is None or row.key in keys]
    names = [name for name in PEERS if any(result.name == name for row in shared for result in row.results)]
    if not shared:
        return ""
    last = [PLAIN] if keys is None else []
    lines = [_line(["work", f"**{OURS}**", *names, *last]), _line(["---"] + ["---:"] * (len(names) + 1 + len(last)))]
    for row in shared:
        by_name = {result.name: result for result in row.results}
        ours = _figures(row, by_name.get(OURS))
        is_best = _is_best(row, by_name.get(OURS), [by_name.get(name) for name in names])
        cells = [f"**{ours}**" if is_best else ours, *(_figures(row, by_name.get(name)) for name in names)]
        if last:
            cells.append(_best_of_plain_sql(row))
        lines.append(_line([f"{row.title}, {unit(row)}", *cells]))
    return "\n".join(lines)


def _best_of_plain_sql(row: RowResult) -> str:
    plain = [result for result in row.results if result.name.startswith(PLAIN)]
    return _figures(row, max(plain, key=lambda result: result.median(row.figures[0]) or 0, default=None))


def _is_best(row: RowResult, ours: Result | None, others: Sequence[Result | None]) -> bool:
    """By every figure: of rates the largest, of times and sizes the smallest."""
    return ours is not None and all(_leads(figure, ours, others) for figure in row.figures)


def _leads(figure: str, ours: Result, others: Sequence[Result | None]) -> bool:
    mine = ours.median(figure)
    known = [value for each in others if each is not None and (value := each.median(figure)) is not None]
    if mine is None:
        return False
    return mine >= max(known, default=mine) if figure == "rate" else mine <= min(known, default=mine)


def details(run: Run) -> str:
    """Every contender of every row, with its settings."""
    lines = [_line(["work", "contender", "jobs", "measured"]), _line(["---", "---", "---:", "---:"])]
    for row in run.rows:
        for result in row.results:
            who = f"{result.name} ({result.settings})" if result.settings else result.name
            jobs = f"{result.jobs:,}" if result.jobs else ""
            lines.append(_line([f"{row.title}, {unit(row)}", who, jobs, _figures(row, result)]))
    return "\n".join(lines)


def targets(run: Run) -> str:
    titles = {row.key: row.title for row in run.rows}
    return "\n".join(f"- {titles[verdict.target.row]}: {verdict}" for verdict in verdicts(run))


def unit(row: RowResult) -> str:
    return row.unit if row.figures == ["rate"] else f"{' / '.join(row.figures)} in {row.unit}"


def number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _figures(row: RowResult, result: Result | None) -> str:
    if result is None:
        return ""
    if result.error is not None:
        return "failed"
    return " / ".join(number(result.median(figure)) for figure in row.figures)


def _line(cells: list[str]) -> str:
    """Escape the text, so that it cannot end the cell."""
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
