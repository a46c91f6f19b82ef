"""The typed contract: what a user writes is clean, what a user gets wrong is found, in both type checkers.

The pairs of files in `tests/typing/` are checked as a user's project would be: outside the source tree, against the
installed package, with each checker at its strictest.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CONTRACT = Path(__file__).resolve().parent / "typing"
CACHE = CONTRACT.parents[1] / ".mypy_cache" / "contract"
"""What mypy knows of the libraries, from one run to the next."""
FILES = sorted(file.name for file in CONTRACT.glob("*.py"))
MARKED = re.compile(r"# E: (?P<reason>.+)$")

Findings = dict[int, list[str]]
Checker = Callable[[Path], dict[str, Findings]]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("contract")
    for file in CONTRACT.glob("*.py"):
        shutil.copy(file, folder)
    return folder


def run(project: Path, *command: str) -> str:
    """What a checker prints; it ends with 1 if it found errors, and with more if it could not do its work."""
    finished = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode in (0, 1), finished.stdout + finished.stderr
    return finished.stdout


def run_mypy(project: Path) -> dict[str, Findings]:
    (project / "mypy.ini").write_text("[mypy]\nstrict = true\n")
    report = run(project, "mypy", "--output=json", f"--cache-dir={CACHE}", *FILES)
    found: dict[str, Findings] = {}
    for line in report.splitlines():
        finding: dict[str, Any] = json.loads(line)
        if finding["severity"] == "error":
            found.setdefault(finding["file"], {}).setdefault(finding["line"], []).append(finding["message"])
    return found


def run_pyright(project: Path) -> dict[str, Findings]:
    settings = {"typeCheckingMode": "strict", "include": FILES}
    (project / "pyrightconfig.json").write_text(json.dumps(settings))
    report = json.loads(run(project, "pyright", "--outputjson", "--pythonpath", sys.executable))
    assert report["summary"]["filesAnalyzed"] == len(FILES)
    found: dict[str, Findings] = {}
    for finding in report["generalDiagnostics"]:
        line = finding["range"]["start"]["line"] + 1
        found.setdefault(Path(finding["file"]).name, {}).setdefault(line, []).append(finding["message"])
    return found


@pytest.mark.timeout(1200)  # the checkers calculate for ten seconds, which can be minutes on a busy machine
@pytest.mark.parametrize("checker", [run_mypy, run_pyright], ids=["mypy", "pyright"])
def test_typed_contract(checker: Checker, project: Path) -> None:
    marked = {
        (file, number): mark["reason"]
        for file in FILES
        for number, line in enumerate((project / file).read_text("utf-8").splitlines(), 1)
        if (mark := MARKED.search(line))
    }
    assert {file for file, _ in marked} == {file for file in FILES if file.endswith("_bad.py")}

    found = {(file, line): messages for file, lines in checker(project).items() for line, messages in lines.items()}

    # An async handler that is wrong is compared with what an async handler must be.
    handlers = [place for place, reason in marked.items() if reason == "wrong output"]
    assert handlers
    assert all(any("Awaitable" in message for message in found[place]) for place in handlers)

    missed = {place: reason for place, reason in marked.items() if place not in found}
    unexpected = {place: messages for place, messages in found.items() if place not in marked}
    assert (missed, unexpected) == ({}, {})
