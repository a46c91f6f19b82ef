"""What `/metrics` answers, as text."""

from __future__ import annotations

from queuert.operate.cli.supervisor.metrics import render


def test_numbers_are_printed_in_full() -> None:
    """A counter above a million moves by one."""
    numbers = [0, 7, 1_000_001, 123_456_789_012, 0.25, 1_234_567.5]
    text = render(
        [("jobs_total", "counter", "Jobs.", [({"process": place}, number) for place, number in enumerate(numbers)])]
    )
    values = [line.rpartition(" ")[2] for line in text.splitlines() if not line.startswith("#")]
    assert values == ["0", "7", "1000001", "123456789012", "0.25", "1234567.5"]
    assert [float(value) for value in values] == numbers


def test_a_figure_has_its_help_and_its_type() -> None:
    text = render([("ready", "gauge", "Processes that are ready.", [({}, 2)])])
    assert text == "# HELP ready Processes that are ready.\n# TYPE ready gauge\nready 2\n"
