"""Limits by key as people write and read them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from queuert.errors import InvalidArgument
from queuert.jobs.limits import Rate
from queuert.records.limits import LimitRow, LimitRule, RateRule, lane_of, split_lane
from queuert.records.pauses import Pause, PauseTarget

NONE = "none"
"""No limit, where a number or a rate could be given."""


def limit_change(*, concurrency: str, rate: str, weight: str) -> dict[str, Any]:
    """The arguments of `set_limit`. What is empty stays as it is."""
    change: dict[str, Any] = {}
    if concurrency:
        change["concurrency"] = read_concurrency(concurrency)
    if rate:
        change["rate"] = read_rate(rate)
    if weight:
        change["weight"] = read_weight(weight)
    if not change:
        raise InvalidArgument("nothing is to be changed: give how many run at once, a rate or a weight")
    return change


def read_concurrency(text: str) -> int | None:
    if text == NONE:
        return None
    if not (text.isascii() and text.isdigit()):
        raise InvalidArgument(f"{text!r} is not a number of jobs, like 4, and not {NONE!r}")
    return int(text)


def read_rate(text: str) -> Rate | None:
    """From `100/10`, `100/10/smooth` or `none`."""
    if text == NONE:
        return None
    number, _, rest = text.partition("/")
    per, slash, smooth = rest.partition("/")
    try:
        parsed = int(number), float(per)
    except ValueError:
        raise InvalidArgument(f"a rate is NUMBER/SECONDS, like 100/10, or {NONE!r}, not {text!r}") from None
    if slash and smooth != "smooth":
        raise InvalidArgument(f"a rate ends with the seconds or with /smooth, not {text!r}")
    return Rate(*parsed, smooth=bool(slash))


def read_weight(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InvalidArgument(f"{text!r} is not a weight: it is a number, and 1 is usual")
    return number


def rate_text(rate: RateRule | None) -> str:
    """As `read_rate` reads it."""
    return NONE if rate is None else f"{rate.number}/{rate.per:g}{'/smooth' if rate.smooth else ''}"


def weight_text(rule: LimitRule) -> str:
    """How many turns a key gets, or that its jobs say it."""
    return "by job" if rule.weight is None else f"{rule.weight:g}"


def key_target(name: str, key: str) -> PauseTarget:
    """One key of a limit, to pause or resume it."""
    return PauseTarget("key", lane_of(name, key))


def key_pauses(pauses: Iterable[Pause]) -> dict[tuple[str, str], Pause]:
    """The pauses of keys, by the name of the limit and the key."""
    return {split_lane(pause.target.name): pause for pause in pauses if pause.target.scope == "key"}


def not_listed(paused: dict[tuple[str, str], Pause], rows: Iterable[LimitRow]) -> list[tuple[str, str, Pause]]:
    """Paused keys that are not among these rows: a key without jobs is not."""
    listed = {(row.name, row.key) for row in rows}
    return [(name, key, pause) for (name, key), pause in sorted(paused.items()) if (name, key) not in listed]
