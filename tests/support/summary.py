"""The end of a run: how to run a failed test alone, why tests were skipped, and what this machine lacks."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from typing import Any

import pytest

MISSING = re.compile(r"(?P<what>.+) is missing: (?P<command>.+)")
"""The reason of a test that needs a program which is not there."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: Any) -> Generator[None]:
    yield
    for paragraph in paragraphs(terminalreporter.stats):
        terminalreporter.write_line(paragraph)


def paragraphs(stats: Mapping[str, Iterable[Any]]) -> list[str]:
    failed = dict.fromkeys(each.nodeid for kind in ("failed", "error") for each in stats.get(kind, ()))
    skipped = Counter(_reason(each) for each in stats.get("skipped", ()))
    missing = {reason: found for reason in skipped if (found := MISSING.fullmatch(reason))}
    on_purpose = [f"{number} × {reason}" for reason, number in skipped.most_common() if reason not in missing]
    lacking = [
        f"{skipped[reason]} tests need {found['what']} ({found['command']})" for reason, found in missing.items()
    ]
    return [
        *(f"To run it alone: .venv/bin/python -m pytest {shlex.quote(test)}" for test in failed),
        *_filled("Skipped on purpose: ", on_purpose),
        *_filled("Left out, because this machine lacks something: ", lacking),
    ]


def _filled(beginning: str, parts: list[str]) -> list[str]:
    return [textwrap.fill(f"{beginning}{'; '.join(parts)}.", 100, subsequent_indent="  ")] if parts else []


def _reason(report: Any) -> str:
    """A skipped report has the place and the reason."""
    _, _, reason = report.longrepr
    return str(reason).removeprefix("Skipped: ")
