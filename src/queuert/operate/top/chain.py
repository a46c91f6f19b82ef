"""One chain: its current job, why it does not run, its error, its attempts and its jobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Footer, Static

from queuert.client.client import Client
from queuert.errors import ChainNotFound, QueuertError
from queuert.features.why import Why
from queuert.jobs.record import JobRecord
from queuert.operate.looking import look_at, most_urgent_first, totals
from queuert.operate.remedies import remedy_of
from queuert.operate.times import local, with_age
from queuert.operate.top.showing import Show
from queuert.operate.top.texts import as_json, lines, status, text
from queuert.records.failed_attempts import FailedAttempt

if TYPE_CHECKING:
    from queuert.operate.top.app import Top

JOBS = 30
"""Jobs of the chain, the latest ones."""
BLOCKERS = 30


class ChainScreen(Screen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "app.pop_screen", "Back"),
        ("r", "change('retry')", "Retry"),
        ("e", "repair", "Edit input"),
        ("c", "change('cancel')", "Cancel"),
        ("t", "change('trigger')", "Due now"),
        ("d", "change('delete')", "Delete"),
    ]
    app: Top

    def __init__(self, chain_id: str) -> None:
        super().__init__()
        self.chain_id = chain_id

    def compose(self) -> ComposeResult:
        yield Static("", id="title")
        with VerticalScroll():
            yield Static("", id="chain")
        yield Footer()

    def on_mount(self) -> None:
        self.app.look()

    def action_change(self, name: str) -> None:
        self.app.change(name, self.chain_id)

    def action_repair(self) -> None:
        self.app.repair(self.chain_id)

    async def read(self, client: Client[Any]) -> Show:
        try:
            look = await look_at(client, self.chain_id, JOBS)
        except ChainNotFound:
            return lambda: self.query_one("#chain", Static).update("This chain does not exist any more. Press Escape.")
        chain, jobs = look.chain, look.page.items
        job = jobs[0]
        parts = list(_facts(job))
        if look.why is not None:
            parts += [_heading("why?"), *_why(look.why)]
        parts += [*_values(job), *_error(job)]
        attempts = await client.attempts(job)
        if attempts:
            parts.append(_heading("failed attempts"))
            parts += [text(_attempt(each)) for each in attempts]
        blockers = most_urgent_first(await client.get_blockers(job) or [], lambda each: each.status)
        if blockers:
            parts.append(_heading(f"waits, or waited, for {totals(each.status for each in blockers)}"))
            parts += [_line(each.status, f"{each.chain_type}  {each.id}") for each in blockers[:BLOCKERS]]
            if len(blockers) > BLOCKERS:
                parts.append(text(f"and {len(blockers) - BLOCKERS:,} more"))
        if len(jobs) > 1:
            parts.append(_heading("jobs of the chain, the latest first"))
            parts += [_line(each.status, f"{each.job_type}  attempt {each.attempt_number}  {each.id}") for each in jobs]
        title = Text.assemble(status(chain.status), " ", text(chain.chain_type, "bold"))

        def show() -> None:
            self.query_one("#title", Static).update(title)
            self.query_one("#chain", Static).update(Text("\n").join(parts))

        return show


def _facts(job: JobRecord[Any]) -> Iterator[Text]:
    for name, value in (
        ("chain", job.chain_id),
        ("job", f"{job.id}  {job.job_type}"),
        ("attempt", job.attempt_number),
        ("lost", f"{job.losses}, with their workers" if job.losses else None),
        ("created", with_age(job.created_at)),
        ("scheduled", with_age(job.scheduled_at)),
        ("deadline", with_age(job.deadline)),
        ("worker", job.leased_by or job.completed_by),
        ("lease until", with_age(job.leased_until)),
        ("ended", with_age(job.completed_at)),
    ):
        if value:
            yield Text.assemble((f"{name:<12}", "dim"), text(value))


def _values(job: JobRecord[Any]) -> Iterator[Text]:
    yield _heading("input")
    yield as_json(job.input)
    if job.status == "completed" and job.continued_to is None:
        yield _heading("output")
        yield _output(job)


def _output(job: JobRecord[Any]) -> Text:
    try:
        return as_json(job.output)
    except QueuertError as error:
        return lines(f"it cannot be read: {error}", "red")


def _error(job: JobRecord[Any]) -> Iterator[Text]:
    error = job.last_error
    if error is not None:
        yield _heading("last error")
        yield lines(f"{error.get('code', '')}: {error.get('message', '')}", "red")
        yield lines(str(error.get("traceback") or ""), "dim")


def _why(found: Why) -> Iterator[Text]:
    if found.schedule is not None:
        yield lines(f"started by the schedule {found.schedule}")
    for reason in found.reasons:
        yield lines(str(reason), "red" if found.status in ("failed", "expired") else "yellow")
        yield lines(f"→ {remedy_of(reason)}")
    if not found.in_the_way:
        yield lines("nothing is in its way: a worker takes it within moments")


def _heading(title: str) -> Text:
    return Text(f"\n{title}", style="bold underline")


def _line(state: str | None, rest: str) -> Text:
    return Text.assemble(status(state), "  ", text(rest))


def _attempt(attempt: FailedAttempt) -> str:
    first, _, _ = (attempt.message or "").partition("\n")
    return f"{attempt.number:>3}  {local(attempt.ended_at)}  {attempt.outcome}  {attempt.code or ''}  {first}"
