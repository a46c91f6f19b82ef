"""The options of a schedule besides its times and its job, checked."""

from __future__ import annotations

from typing import TypedDict

from queuert.base.arguments import MAX_NAME_LENGTH, Duration, check_text, seconds
from queuert.errors import InvalidArgument
from queuert.features.schedules.stored import CATCH_UPS, OVERLAPS, CatchUp, Overlap

MOST_CAUGHT_UP = 10_000


class ScheduleOptions(TypedDict, total=False):
    """The keywords of `put_schedule`, and of the declarations of `Schedules`."""

    overlap: Overlap
    catch_up: CatchUp
    catch_up_max: int
    within: Duration | None


def check_name(name: object) -> str:
    return check_text(name, "the name of a schedule", MAX_NAME_LENGTH)


def check_options(options: ScheduleOptions) -> None:
    unknown = [name for name in options if name not in ScheduleOptions.__annotations__]
    if unknown:
        known = ", ".join(ScheduleOptions.__annotations__)
        raise InvalidArgument(f"a schedule has no option {unknown[0]!r}: it takes {known}")
    overlap, catch_up = options.get("overlap", "allow"), options.get("catch_up", "last")
    if overlap not in OVERLAPS:
        raise InvalidArgument(f"overlap must be one of {', '.join(OVERLAPS)}, got {overlap!r}")
    if catch_up not in CATCH_UPS:
        raise InvalidArgument(f"catch_up must be one of {', '.join(CATCH_UPS)}, got {catch_up!r}")
    most = options.get("catch_up_max", 100)
    if type(most) is not int or not 1 <= most <= MOST_CAUGHT_UP:
        raise InvalidArgument(f"catch_up_max must be a number from 1 to {MOST_CAUGHT_UP}, got {most!r}")
    within = options.get("within")
    if within is not None:
        seconds(within, "within")
        if catch_up == "none":
            raise InvalidArgument('within= is how far back to catch up: it needs catch_up="last" or "all"')
