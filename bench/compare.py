"""Compare two result files, or two checkouts in one result file
(`python -m bench --against CHECKOUT`).

python -m bench.compare BEFORE.json AFTER.json
python -m bench.compare RESULT.json
"""

from __future__ import annotations

import sys
from pathlib import Path

from bench.results import Run
from bench.rows import before_name
from bench.table import number


def compare(before: Run, after: Run) -> str:
    """Every figure that both runs have, with the ratio."""
    lines = ["| work | contender | before | after | ratio |", "| --- | --- | ---: | ---: | ---: |"]
    for row in after.rows:
        for result in row.results:
            for figure in row.figures:
                then, now = before.median(row.key, result.name, figure), result.median(figure)
                if then is None or now is None:
                    continue
                what = row.title if figure == "rate" else f"{row.title}, {figure}"
                ratio = f"{now / then:.2f}" if then else "–"
                lines.append(f"| {what} | {result.name} | {number(then)} | {number(now)} | {ratio} |")
    return "\n".join(lines)


def compare_checkouts(run: Run) -> str:
    """Both checkouts were measured in turns within one run: the medians, and their ratio."""
    lines = ["| work | before | after | ratio |", "| --- | ---: | ---: | ---: |"]
    for row in run.rows:
        for result in row.results:
            for figure in row.figures:
                then, now = row.median(before_name(result.name), figure), result.median(figure)
                if then is None or now is None:
                    continue
                what = " · ".join(filter(None, (row.title, result.name, "" if figure == "rate" else figure)))
                lines.append(f"| {what} | {number(then)} | {number(now)} | {now / then:.2f} |")
    return "\n".join(lines)


def main() -> None:
    runs = [Run.load(Path(path)) for path in sys.argv[1:]]
    match runs:
        case [run]:
            print(compare_checkouts(run))
        case [before, after]:
            print(compare(before, after))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
