"""Write a run into README.md and docs/benchmark.md, between their marks: python -m bench.publish
[latest.json]

README.md gets the matrix, docs/benchmark.md the chart and everything else.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bench import table
from bench.environments import ROOT
from bench.results import Run

BEGIN, END = "<!-- benchmark: begin -->", "<!-- benchmark: end -->"


def between_marks(text: str, new: str) -> str:
    """`text` with `new` between its marks."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"there must be a line {BEGIN} and a line {END}")
    return f"{before}{BEGIN}\n{new.strip()}\n{END}{after}"


def main() -> None:
    name = Path(sys.argv[1] if len(sys.argv) > 1 else "latest.json").stem
    run = Run.load(ROOT / "bench" / "results" / f"{name}.json")
    drawing = f"bench/results/{name}.svg"
    short = f"{table.matrix(run)}\n\n{table.caption(run)}"
    whole = f"![Jobs per second, by library](../{drawing})\n\n{table.markdown(run)}"
    for page, new in ((ROOT / "README.md", short), (ROOT / "docs" / "benchmark.md", whole)):
        page.write_text(between_marks(page.read_text("utf-8"), new), "utf-8")


if __name__ == "__main__":
    main()
