"""What the tabs show. A pane reads the database while it is looked at, and a bounded number of
rows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Input, Label, Sparkline, Static

from queuert.base.own_types import is_own
from queuert.base.statuses import IN_STATS
from queuert.client.client import Client
from queuert.errors import InvalidArgument
from queuert.jobs.filter import Filter
from queuert.operate.attention import SCHEDULES as NEEDED_SCHEDULES
from queuert.operate.attention import attention
from queuert.operate.counts import BOUND, Count
from queuert.operate.filters import read_filter
from queuert.operate.ids import find_job
from queuert.operate.limits import key_pauses, key_target, not_listed, rate_text, weight_text
from queuert.operate.listing import latest_chains, types_of
from queuert.operate.pauses import target_text
from queuert.operate.queues import queue_lines
from queuert.operate.times import brief, local
from queuert.operate.top.showing import Show, load
from queuert.operate.top.tables import Table
from queuert.operate.top.texts import age, lines, status, text
from queuert.records.limits import COUNTED, LimitRow
from queuert.records.pauses import Pause, PauseTarget

HISTORY = timedelta(hours=1)
CHAINS = 100
SHORT_PAGES = 3
"""Pages that may be read although few of the chains on them match."""
SCHEDULES = 200
LIMITS = 200
RESTING = ("paused", "disabled")
"""Schedules in these states have no next tick, although one is stored."""


class Pane(Vertical):
    """One tab."""

    async def read(self, client: Client[Any]) -> Show:
        """Read what it shows."""
        raise NotImplementedError


class Overview(Pane):
    failed: frozenset[str] = frozenset()
    """Types with jobs that failed."""

    def compose(self) -> ComposeResult:
        yield Label("completed, by minute", classes="chart-title", id="completed-title")
        yield Sparkline([], id="completed")
        yield Label("failed for good, by minute", classes="chart-title", id="failed-title")
        yield Sparkline([], id="failed")
        yield Static("", id="attention")
        yield Table("type", *IN_STATS, "oldest ready", flexible=["type"], id="types")

    async def read(self, client: Client[Any]) -> Show:
        stats = [each for each in await client.stats(limit=BOUND + 1) if not is_own(each.job_type)]
        workers, pauses = await client.list_workers(), await client.list_pauses()
        self.failed = frozenset(each.job_type for each in stats if each.failed)
        points = (await client.history(since=HISTORY)).total()
        schedules = (await client.list_schedules(limit=NEEDED_SCHEDULES)).items
        found = attention(stats, workers, pauses, schedules, datetime.now(UTC))
        notes = [f"{'✗' if each.level == 'bad' else '!'} {each.text}" for each in found]
        alive = [worker for worker in workers if worker.state == "alive"]
        busy, slots = sum(worker.busy for worker in alive), sum(worker.slots or 0 for worker in alive)
        shown = notes[:4] + [f"… and {len(notes) - 4} more"] * (len(notes) > 4) or ["✓ nothing needs attention"]
        shown.append(f"{len(alive)} worker{'s' * (len(alive) != 1)} alive, {busy} of {slots} slots busy")
        rows = [
            (
                each.job_type,
                [
                    text(each.job_type),
                    *(
                        text(
                            Count.up_to(BOUND, getattr(each, name)),
                            "bold red" if name == "failed" and each.failed else "",
                        )
                        for name in IN_STATS
                    ),
                    age(each.oldest_ready_age),
                ],
            )
            for each in sorted(stats, key=lambda each: (-each.failed, each.job_type))
        ]

        def show() -> None:
            self._show_chart("completed", "completed", [point.completed for point in points])
            self._show_chart("failed", "failed for good", [point.failed for point in points])
            self.query_one("#attention", Static).update(lines("\n".join(shown)))
            self.query_one("#types", Table).show(rows)

        return show

    def _show_chart(self, name: str, title: str, numbers: Sequence[int]) -> None:
        now, most = (numbers[-1], max(numbers)) if numbers else (0, 0)
        self.query_one(f"#{name}", Sparkline).data = [float(number) for number in numbers]
        self.query_one(f"#{name}-title", Label).update(f"{title}, last hour by minute: now {now:,}, most {most:,}")


class Chains(Pane):
    """Chains that match a filter, the latest first."""

    where = Filter()
    problem: str | None = None
    """What is wrong with the filter that was given last."""

    def compose(self) -> ComposeResult:
        yield Input(placeholder="status:failed type:charge-card since:2h, or an id", id="filter")
        yield Static("", id="filter-problem")
        yield Table("status", "type", "created", "error", "id", flexible=["type", "error", "id"], id="chains")

    async def filter_changed(self, client: Client[Any], given: str) -> str | None:
        """Returns the id of a job if that was given instead of a filter."""
        self.problem = None
        try:
            if given and ":" not in given:
                return (await find_job(client, given)).chain_id
            self.where = await read_filter(client, given.split())
        except InvalidArgument as error:
            self.problem = str(error)
        self.query_one("#filter-problem", Static).update(text(self.problem, "red"))
        await load(self, client)
        return None

    async def read(self, client: Client[Any]) -> Show:
        page = await latest_chains(client, self.where, CHAINS, short_pages=SHORT_PAGES)
        rows = [
            (
                chain.id,
                [
                    status(chain.status),
                    text(types_of(chain)),
                    text(brief(chain.created_at)),
                    text((chain.last_error or {}).get("code"), "red"),
                    text(chain.id),
                ],
            )
            for chain in page.items
        ]
        return lambda: self.query_one("#chains", Table).show(rows)


class Workers(Pane):
    def compose(self) -> ComposeResult:
        yield Table(
            "state",
            "busy",
            "host",
            "pid",
            "release",
            "last seen",
            "types",
            flexible=["types", "host", "release"],
            id="workers",
        )

    async def read(self, client: Client[Any]) -> Show:
        now = datetime.now(UTC)
        rows = [
            (
                worker.id,
                [
                    status(worker.state),
                    text(f"{worker.busy} of {'?' if worker.slots is None else worker.slots}"),
                    text(worker.host),
                    text(worker.pid),
                    text(worker.release),
                    age(max(0.0, (now - worker.seen_at).total_seconds())),
                    text(", ".join(name for name in worker.job_types if not is_own(name))),
                ],
            )
            for worker in await client.list_workers()
        ]
        return lambda: self.query_one("#workers", Table).show(rows)


class Queues(Pane):
    """Queues and their types, and what is paused."""

    def compose(self) -> ComposeResult:
        yield Table(
            "queue or type",
            "running",
            "pending",
            "workers",
            "cap",
            "paused",
            flexible=["queue or type", "paused"],
            id="queues",
        )

    async def read(self, client: Client[Any]) -> Show:
        stats = {each.job_type: each for each in await client.stats(limit=BOUND + 1) if not is_own(each.job_type)}
        workers = [worker for worker in await client.list_workers() if worker.state != "dead"]
        pauses = {pause.target: pause for pause in await client.list_pauses()}
        rows: list[tuple[str, list[Text]]] = []

        def row(target: PauseTarget, title: str, *cells: object) -> None:
            pause = pauses.get(target)
            note = "" if pause is None else f"⏸ {pause.reason or 'yes'}"
            rows.append((target_text(target), [text(title), *(text(cell) for cell in cells), text(note, "yellow")]))

        row(PauseTarget("everything"), "everything", "", "", "", "")
        for queue in queue_lines(workers, stats, pauses):
            if queue.name is None or not queue.types:
                continue
            caps = ", ".join(map(str, sorted(queue.caps)))
            row(PauseTarget("queue", queue.name), f"queue {queue.name}", "", "", queue.workers, caps)
            for name, each in sorted(queue.types.items()):
                row(PauseTarget("type", name), f"  {name}", each.running, each.pending, "", "")
        return lambda: self.query_one("#queues", Table).show(rows)


class Schedules(Pane):
    def compose(self) -> ComposeResult:
        yield Table("name", "times", "status", "next tick", "last tick", flexible=["name", "times"], id="schedules")

    async def read(self, client: Client[Any]) -> Show:
        page = await client.list_schedules(limit=SCHEDULES)
        rows = [
            (
                each.name,
                [
                    text(each.name),
                    text(each.times),
                    status(each.status),
                    text("" if each.status in RESTING else local(each.next_at)),
                    text(local(each.last_tick)),
                ],
            )
            for each in page.items
        ]
        return lambda: self.query_one("#schedules", Table).show(rows)


class Limits(Pane):
    """Limits and their keys: what runs, who waits, and what is paused."""

    def compose(self) -> ComposeResult:
        yield Table(
            "limit",
            "key",
            "running",
            "waiting",
            "rate",
            "weight",
            "note",
            flexible=["limit", "key", "note"],
            id="limits",
        )

    async def read(self, client: Client[Any]) -> Show:
        page = await client.list_limits(limit=LIMITS)
        paused = key_pauses(await client.list_pauses())
        rows = [_limit_row(row, None if row.key is None else paused.get((row.name, row.key))) for row in page.items]
        for name, key, pause in not_listed(paused, page.items):
            cells = [text(name), text(key), *(text("") for _ in range(4)), _note(["⏸ paused", pause.reason])]
            rows.append((target_text(key_target(name, key)), cells))
        return lambda: self.query_one("#limits", Table).show(rows)


def _limit_row(row: LimitRow, pause: Pause | None) -> tuple[str, list[Text]]:
    rule = row.rule
    most = "" if rule.concurrency is None else f" of {rule.concurrency:,}{' each' * (row.key is None)}"
    notes = [
        "⏸ paused" if pause is not None else None,
        None if pause is None else pause.reason,
        "changed by hand" if row.is_set else None,
        "in order" if rule.ordered else None,
        f"opens {local(row.opens_at)}" if row.opens_at else None,
    ]
    return (
        f"limit:{row.name}" if row.key is None else target_text(key_target(row.name, row.key)),
        [
            text(row.name),
            text("all keys" if row.key is None else row.key, "dim" if row.key is None else ""),
            text(f"{row.running:,}{most}"),
            text("" if row.key is None else f"{row.waiting:,}{'+' * (row.waiting >= COUNTED)}"),
            text("" if rule.rate is None else rate_text(rule.rate)),
            text(weight_text(rule)),
            _note(notes),
        ],
    )


def _note(parts: Sequence[str | None]) -> Text:
    return text(", ".join(part for part in parts if part), "yellow")
