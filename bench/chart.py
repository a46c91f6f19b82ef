"""A run as an SVG chart: bars for the rows with several libraries.

It follows the reader's light or dark theme.
"""

from __future__ import annotations

from xml.sax.saxutils import escape

from bench.results import RowResult, Run
from bench.roster import OURS
from bench.table import number, unit

DRAWN = ("drain-1", "drain-2", "start-bulk", "start-one")
WIDTH, LABELS, BAR, GAP, HEAD, MARGIN = 760, 250, 18, 6, 34, 16
LONGEST = WIDTH - LABELS - 110
"""The width of the bars. Their figures are to the right of them."""

STYLE = """
text { font: 13px system-ui, sans-serif; fill: #24292f } .title { font-weight: 600 } .ours { font-weight: 600 }
rect { fill: #afb8c1 } rect.ours { fill: #1f6feb } .note { font-size: 11px; fill: #57606a }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } rect { fill: #6e7681 } rect.ours { fill: #58a6ff } .note { fill: #9198a1 }
}
""".strip()


def svg(run: Run) -> str:
    parts: list[str] = []
    top = MARGIN
    for key in DRAWN:
        row = run.row(key)
        if row is not None:
            drawn, top = _panel(row, top)
            parts += drawn
    processor = run.machine["processor"]
    note = f"{run.date[:10]}, {processor}, {run.machine['cores']} cores, PostgreSQL {run.server['version']}, fsync on"
    parts.append(f'<text class="note" x="{MARGIN}" y="{top + 12}">{escape(note)}</text>')
    height = top + 12 + MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="Benchmark"><style>{STYLE}</style>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _panel(row: RowResult, top: int) -> tuple[list[str], int]:
    """A title with a bar for each contender, the longest first. Also returns where it ends."""
    bars = [(value, result.name) for result in row.results if (value := result.median(row.figures[0])) is not None]
    if not bars:
        return [], top
    longest = max(bars)[0]
    parts = [f'<text class="title" x="{MARGIN}" y="{top + 14}">{escape(f"{row.title}, {unit(row)}")}</text>']
    y = top + HEAD - 6
    for value, name in sorted(bars, reverse=True):
        mark = ' class="ours"' if name.startswith(OURS) else ""
        width = max(1, round(LONGEST * value / longest))
        middle = y + BAR - 5
        parts.append(f'<text{mark} x="{LABELS - 8}" y="{middle}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<rect{mark} x="{LABELS}" y="{y}" width="{width}" height="{BAR}" rx="2"/>')
        parts.append(f'<text{mark} x="{LABELS + width + 6}" y="{middle}">{number(value)}</text>')
        y += BAR + GAP
    return parts, y + MARGIN
