"""The picture of a chain: its line of jobs, what they waited for, and what waits for it.

Laid out here, so that it needs no script. The line goes to the right, or down on a narrow screen.
Jobs of one type that follow each other are a loop, and one box.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from queuert.operate.dashboard.drawing.timeline import NOT_YET
from queuert.operate.dashboard.letters import fitted, width_of
from queuert.operate.looking import totals

Direction = Literal["right", "down"]
NodeKind = Literal["job", "blocker", "dependent", "more"]

WIDTH, HEIGHT = 200, 60
GAP_ALONG, GAP_ACROSS = 46, 18
MARGIN = 14
ROOM_FOR_LOOP = 18
MOST_BESIDE = 4
"""Blockers of one job, or dependents, that have a box of their own."""
PADDING = 13
SIGN = 19
"""What the sign of the status takes before the title."""
TITLE, DETAIL = 13.5, 12
"""Sizes of letters."""


@dataclass(frozen=True)
class Step:
    """One box of the line: a job, or several of one type."""

    title: str
    status: str
    detail: str
    href: str | None
    times: int = 1
    beside: Sequence[Beside] = ()
    """The chains that it waited for."""


@dataclass(frozen=True)
class Beside:
    """A chain that a job of the line waited for, or a job that waits for the chain."""

    title: str
    status: str
    detail: str
    href: str | None


@dataclass(frozen=True)
class Box:
    x: int
    y: int
    kind: NodeKind
    title: str
    status: str
    detail: str
    href: str | None
    times: int = 1

    @property
    def has_sign(self) -> bool:
        return bool(self.status) and self.status != NOT_YET

    @property
    def label(self) -> str:
        """The title as far as it fits."""
        room = WIDTH - 2 * PADDING - (SIGN if self.has_sign else 0)
        if self.times > 1:
            room -= 8 + round(width_of(f"×{self.times}", TITLE, bold=True))
        return fitted(self.title, room, TITLE, bold=True)

    @property
    def about(self) -> str:
        """The status and the detail."""
        return " · ".join(filter(None, (self.status, self.detail)))

    @property
    def line(self) -> str:
        """The same as far as it fits."""
        return fitted(self.about, WIDTH - 2 * PADDING, DETAIL)


@dataclass
class Picture:
    direction: Direction
    boxes: list[Box] = field(default_factory=list[Box])
    lines: list[str] = field(default_factory=list[str])
    """Paths of arrows."""
    width: int = 0
    height: int = 0
    box_width: int = WIDTH
    box_height: int = HEIGHT


def draw(steps: Sequence[Step], dependents: Sequence[Beside], direction: Direction) -> Picture:
    """Where everything is."""
    picture = Picture(direction)
    if direction == "right":
        _right(picture, steps, dependents)
    else:
        _down(picture, steps, dependents)
    picture.width = max((box.x for box in picture.boxes), default=0) + WIDTH + MARGIN
    picture.height = max((box.y for box in picture.boxes), default=0) + HEIGHT + MARGIN
    return picture


def _right(picture: Picture, steps: Sequence[Step], dependents: Sequence[Beside]) -> None:
    """What the first job waited for is at its left. What a later one waited for is above the job
    before it.
    """
    across = HEIGHT + GAP_ACROSS
    loop = ROOM_FOR_LOOP if any(step.times > 1 for step in steps) else 0
    before = _shown(steps[0].beside) if steps else []
    rows_above = max((len(_shown(step.beside)) for step in steps[1:]), default=0)
    top = MARGIN + max(rows_above * across + loop, (len(before) - 1) * across // 2, loop)
    middle = top + HEIGHT // 2
    x = MARGIN + (WIDTH + GAP_ALONG if before else 0)
    for number, step in enumerate(steps):
        if number:
            _arrow(picture, (x - GAP_ALONG, middle), (x, middle))
        _job(picture, step, x, top)
        shown = _shown(step.beside)
        for row, each in enumerate(shown):
            y = top - (row + 1) * across - loop if number else top + row * across - (len(shown) - 1) * across // 2
            picture.boxes.append(_box(each, "blocker", x - WIDTH - GAP_ALONG, y))
            _arrow(picture, (x - GAP_ALONG, y + HEIGHT // 2), (x, middle))
        x += WIDTH + GAP_ALONG
    for row, each in enumerate(_shown(dependents)):
        y = top + row * across
        picture.boxes.append(_box(each, "dependent", x, y))
        _arrow(picture, (x - GAP_ALONG, middle), (x, y + HEIGHT // 2))


def _down(picture: Picture, steps: Sequence[Step], dependents: Sequence[Beside]) -> None:
    """What a job waited for is above it, and a little to the right."""
    y = MARGIN
    line, joined, beside = MARGIN + 40, MARGIN + 64, MARGIN + WIDTH // 2
    end: int | None = None
    for step in steps:
        blockers = _shown(step.beside)
        bottom = y + len(blockers) * (HEIGHT + GAP_ACROSS) + (ROOM_FOR_LOOP if step.times > 1 else 0)
        for each in blockers:
            picture.boxes.append(_box(each, "blocker", beside, y))
            picture.lines.append(f"M{beside},{y + HEIGHT // 2} H{joined} V{bottom}")
            y += HEIGHT + GAP_ACROSS
        if end is not None:
            _arrow(picture, (line, end), (line, bottom))
        _job(picture, step, MARGIN, bottom)
        end = bottom + HEIGHT
        y = end + GAP_ACROSS * 2
    for each in _shown(dependents):
        picture.boxes.append(_box(each, "dependent", beside, y))
        picture.lines.append(f"M{line},{end or y} V{y + HEIGHT // 2} H{beside}")
        y += HEIGHT + GAP_ACROSS


def _job(picture: Picture, step: Step, x: int, y: int) -> None:
    picture.boxes.append(Box(x, y, "job", step.title, step.status, step.detail, step.href, step.times))
    if step.times > 1:
        left, right, up = x + WIDTH // 2 - 38, x + WIDTH // 2 + 38, y - ROOM_FOR_LOOP + 4
        picture.lines.append(f"M{right},{y} C{right},{up - 6} {left},{up - 6} {left},{y}")


def _shown(beside: Sequence[Beside]) -> list[Beside]:
    if len(beside) <= MOST_BESIDE:
        return list(beside)
    shown, rest = list(beside[: MOST_BESIDE - 1]), beside[MOST_BESIDE - 1 :]
    return [*shown, Beside(f"and {len(rest):,} more", "", totals(each.status for each in rest), None)]


def _box(beside: Beside, kind: NodeKind, x: int, y: int) -> Box:
    known = kind if beside.href is not None else "more"
    return Box(x, y, known, beside.title, beside.status, beside.detail, beside.href)


def _arrow(picture: Picture, start: tuple[int, int], end: tuple[int, int]) -> None:
    (x1, y1), (x2, y2) = start, end
    if x1 == x2 or y1 == y2:
        picture.lines.append(f"M{x1},{y1} L{x2},{y2}")
    else:
        bend = GAP_ALONG // 2
        picture.lines.append(f"M{x1},{y1} C{x1 + bend},{y1} {x2 - bend},{y2} {x2},{y2}")
