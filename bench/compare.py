"""Compare two result files: python -m bench.compare BEFORE.json AFTER.json"""

from __future__ import annotations

import sys
from pathlib import Path

from bench.results import Run
from bench.table import number


def compare(before: Run, after: Run) -> str:
    """Every figure that both have, and by which factor it has changed."""
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


def main() -> None:
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    print(compare(*(Run.load(Path(path)) for path in sys.argv[1:])))


if __name__ == "__main__":
    main()
