"""Templates, and how values look in them. Everything is escaped, in every template."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, cast

from queuert.base.times import distance_of, length_of
from queuert.errors import DriverMissing
from queuert.operate.counts import Count
from queuert.operate.dashboard.assets import assets
from queuert.operate.dashboard.linking import linked
from queuert.operate.remedies import remedy_of
from queuert.records.schedules import read_chain_id

SHORT_ID = 8
"""Characters at the end of an id that are shown in lists. The beginning of a UUIDv7 is the time, so
ids of the same minute begin alike."""


@cache
def _environment() -> Any:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        raise DriverMissing("jinja2", ["dashboard"], error) from None
    environment: Any = Environment(
        loader=PackageLoader("queuert.operate.dashboard"),
        autoescape=True,  # also in .svg files, which select_autoescape() leaves out
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        short=short_id,
        utc=utc,
        iso=iso,
        length=length_of,
        linked=linked,
        number=number,
        between=between,
        duration=duration,
        capitalize_first=capitalize_first,
        details=details_text,
        remedy=remedy_of,
    )
    environment.globals.update(ago=ago, asset_version=asset_version)
    return environment


def render(template: str, context: Mapping[str, Any]) -> str:
    text: str = _environment().get_template(template).render(context)
    return text


def asset_version(name: str) -> str:
    """What changes if the file does."""
    return assets()[name].version


def number(value: Count | int) -> str:
    """1,234 or 10,000+."""
    return str(value) if isinstance(value, Count) else f"{value:,}"


def details_text(details: Mapping[str, Any] | None) -> str:
    """What else an audited change was asked for: cascade, concurrency 5."""
    return ", ".join(f"{name.replace('_', ' ')}{_detail(value)}" for name, value in (details or {}).items())


def _detail(value: object) -> str:
    if value is True:
        return ""
    return f" {'/'.join(map(str, cast('list[object]', value)))}" if isinstance(value, list) else f" {value}"


def capitalize_first(text: str) -> str:
    """The rest stays as it is: it may contain names."""
    return text[:1].upper() + text[1:]


def short_id(id: str) -> str:
    """Enough of an id to tell it from those beside it."""
    tick = read_chain_id(id)
    if tick is not None:  # all that a schedule starts ends alike: the tick, and the place in its list of jobs
        return f"…{id[6:13]}{f'-{id[15:18]}' if tick.place else ''}…{id[-4:]}"
    return id if len(id) <= SHORT_ID + 4 else f"…{id[-SHORT_ID:]}"


def utc(moment: datetime) -> str:
    """2026-11-17 08:00:00 UTC."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def iso(moment: datetime) -> str:
    """For programs and addresses."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def ago(moment: datetime, now: datetime) -> str:
    """How long ago it was, or how soon it will be."""
    seconds = (moment - now).total_seconds()
    return "now" if abs(seconds) < 1 else distance_of(seconds)


def duration(seconds: float) -> str:
    """Also if it is less than a second."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 10 else length_of(seconds)


def between(start: datetime, end: datetime) -> str:
    """How long something took, also if that was less than a second."""
    return duration(max(0.0, (end - start).total_seconds()))
