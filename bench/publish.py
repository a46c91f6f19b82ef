"""Write a run into the pages that show its figures, between their marks: python -m bench.publish
[latest.json]
"""

from __future__ import annotations

import sys
from pathlib import Path

from bench import table
from bench.environments import ROOT
from bench.results import Run

BEGIN, END = "<!-- benchmark: begin -->", "<!-- benchmark: end -->"
IN_README = ("drain-1", "start-one", "start-bulk", "pick-up")
"""The rows of its short table. docs/benchmark.md has all."""


def texts(run: Run, drawing: str) -> dict[str, str]:
    """What each page has between its marks."""
    return {
        "README.md": f"{table.matrix(run, IN_README)}\n\n{table.short_caption(run)}",
        "docs/benchmark.md": f"![Jobs per second, by library](../{drawing})\n\n{table.markdown(run)}",
        "docs/comparison/README.md": table.against(run, "pgqueuer"),
    }


def between_marks(text: str, new: str) -> str:
    """`text` with `new` between its marks."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"there must be a line {BEGIN} and a line {END}")
    return f"{before}{BEGIN}\n{new.strip()}\n{END}{after}"


def main() -> None:
    stem = Path(sys.argv[1] if len(sys.argv) > 1 else "latest.json").stem
    run = Run.load(ROOT / "bench" / "results" / f"{stem}.json")
    for name, new in texts(run, f"bench/results/{stem}.svg").items():
        page = ROOT / name
        page.write_text(between_marks(page.read_text("utf-8"), new), "utf-8")


if __name__ == "__main__":
    main()
