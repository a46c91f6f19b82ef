"""The application: tabs, what is read when, and what can be changed."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.widgets import Footer, Input, Static, TabbedContent, TabPane

from queuert.cli.terminal import plain
from queuert.cli.times import local
from queuert.cli.top.asking import Answer, Question
from queuert.cli.top.chain import ChainScreen
from queuert.cli.top.panes import Chains, Overview, Pane, Queues, Schedules, Workers
from queuert.cli.top.tables import Table
from queuert.cli.top.texts import lines, text
from queuert.client.client import Client
from queuert.client.own_work import carry_out
from queuert.errors import QueuertError
from queuert.model import REPAIRABLE
from queuert.operating.changes import CHANGES
from queuert.operating.pauses import target_of, with_versions
from queuert.operating.repairing import carry_out_repair, plan_repair
from queuert.schedules.times import Tick
from queuert.why import NoWorker

EVERY = 2.0
"""Seconds between two looks at the database."""
PREVIEWED = 5
PANES = {"overview": Overview, "chains": Chains, "workers": Workers, "queues": Queues, "schedules": Schedules}
HELP = """\
1–5     overview, chains, workers, queues, schedules
/       filter of chains
Enter   look at a chain
r c t d retry, cancel, make due now, delete
R C T D the same for all chains that match the filter
e       edit the input of a chain, and retry it
p       pause or resume a queue, a type or a schedule
f       fire a schedule now
Space   stop or go on reading the database
q       quit"""


class Top(App[None]):
    TITLE = "queuert"
    CSS = """
    Top > Screen { overflow: hidden; }
    #tabs { height: 1fr; }
    #title, #bar { height: 1; background: $primary-background; padding: 0 1; }
    Sparkline { height: 2; margin: 0 1; }
    #failed > .sparkline--max-color { color: $error; }
    #failed > .sparkline--min-color { color: $error-darken-3; }
    .chart-title { color: $text-muted; padding: 0 1; }
    #attention { padding: 0 1; height: auto; max-height: 7; }
    #filter { border: none; height: 1; margin: 0 1; background: $surface; }
    #filter-problem { height: auto; padding: 0 1; }
    #chain { padding: 0 1; height: auto; }
    Table { height: 1fr; }
    Question { align: center middle; }
    #question { width: 90%; max-width: 90; height: auto; max-height: 90%; border: round $warning; padding: 1; }
    #question-title { text-style: bold; }
    #question #value { height: 8; }
    #problem { color: $error; height: auto; }
    #buttons { height: 3; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *((str(number), f"show('{name}')", "") for number, name in enumerate(PANES, 1)),
        ("/", "filter", "Filter"),
        ("r", "change_row('retry')", "Retry"),
        ("c", "change_row('cancel')", "Cancel"),
        ("t", "change_row('trigger')", ""),
        ("d", "change_row('delete')", ""),
        *((name[0].upper(), f"change_all('{name}')", "") for name in ("retry", "cancel", "trigger", "delete")),
        ("e", "repair_row", "Edit"),
        ("p", "pause", "Pause"),
        ("f", "fire", ""),
        ("space", "freeze", "Freeze"),
        ("question_mark", "help", "Help"),
        ("q", "quit", "Quit"),
    ]

    def __init__(self, client: Client[Any], by: str, database: str) -> None:
        super().__init__()
        self._client = client
        self._by = by
        self._database = database
        self._frozen = False
        self._trouble: str | None = None

    def compose(self) -> ComposeResult:
        yield Static("", id="bar")
        with TabbedContent(id="tabs"):
            for number, (name, pane) in enumerate(PANES.items(), 1):
                with TabPane(f"{number} {name}", id=f"tab-{name}"):
                    yield pane()
        yield Footer()

    def on_mount(self) -> None:
        self.set_interval(EVERY, self._look_again)

    # Reading

    @property
    def _pane(self) -> Pane:
        return self.query_one(PANES[self._tab])

    @property
    def _tab(self) -> str:
        return self.query_one("#tabs", TabbedContent).active.removeprefix("tab-") or "overview"

    def _look_again(self) -> None:
        # A look that takes long is not cut short by the next one.
        if not self._frozen and not any(each.group == "look" and each.is_running for each in self.workers):
            self.look()

    @work(exclusive=True, group="look")
    async def look(self) -> None:
        """Read what is on the screen."""
        shown = self.screen if isinstance(self.screen, ChainScreen) else self._pane
        if not shown.is_mounted:
            return
        try:
            await shown.load(self._client)
            self._trouble = None
        except (QueuertError, OSError) as error:
            self._trouble = str(error)
        self._show_bar()

    def _show_bar(self) -> None:
        state = " (frozen: Space goes on)" if self._frozen else ""
        bar = text(f"queuert top  {self._database}{state}")
        if self._trouble is not None:
            bar = text(f"not up to date: {self._trouble}", "bold red")
        for each in self.screen_stack[0].query("#bar").results(Static):
            each.update(bar)

    def on_tabbed_content_tab_activated(self) -> None:
        self.look()

    @work(exclusive=True, group="filter")
    async def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.input.id != "filter":
            return
        pane = self.query_one(Chains)
        chain_id = await self._guarded(lambda: pane.filter_changed(self._client, event.value.strip()))
        if chain_id is not None:
            await self.push_screen(ChainScreen(chain_id))
        elif pane.problem is None:
            self.query_one("#chains", Table).focus()

    async def on_data_table_row_selected(self) -> None:
        chain_id = self._chosen("chains")
        if chain_id is not None:
            await self.push_screen(ChainScreen(chain_id))

    # Keys

    def action_show(self, name: str) -> None:
        self.query_one("#tabs", TabbedContent).active = f"tab-{name}"
        table = self.query_one(PANES[name]).query(Table).first()
        table.focus()

    def action_filter(self) -> None:
        self.action_show("chains")
        self.query_one("#filter").focus()

    def action_freeze(self) -> None:
        self._frozen = not self._frozen
        self._show_bar()

    def action_help(self) -> None:
        self.notify(HELP, title="Keys", timeout=15, markup=False)

    def action_change_row(self, name: str) -> None:
        chain_id = self._chosen("chains")
        if chain_id is not None:
            self.change(name, chain_id)

    def action_repair_row(self) -> None:
        chain_id = self._chosen("chains")
        if chain_id is not None:
            self.repair(chain_id)

    def _chosen(self, name: str) -> str | None:
        """The row with the cursor, if this tab is open."""
        return self.query_one(f"#{name}", Table).chosen if self._tab == name else None

    # Changing

    @work(exclusive=True, group="change")
    async def change(self, name: str, chain_id: str) -> None:
        """Retry, cancel, trigger or delete one chain, after a question."""
        change, client = next(each for each in CHANGES if each.name == name), self._client
        chain = await self._guarded(lambda: client.get_chain(chain_id))
        if chain is None:
            return
        if not change.allows(chain.status):
            self._tell(f"the chain is {chain.status}, and this is for chains that are {change.needs}")
            return
        explanation = Text.assemble(text(change.text), "\n", text(f"{chain.chain_type}  {chain.id}"))
        answer = await self._ask(f"{name} this chain?", explanation, name)
        if answer is None:
            return

        async def carry_it_out() -> bool:
            async with client.transaction() as tx:
                await change.carry_out(client, tx, [chain_id], by=self._by, reason=answer.reason)
            return True

        if await self._guarded(carry_it_out):
            self._tell(f"{change.done}: 1 chain")

    @work(exclusive=True, group="change")
    async def repair(self, chain_id: str) -> None:
        """Edit the input, and retry."""
        client = self._client
        chain = await self._guarded(lambda: client.get_chain(chain_id))
        job = None if chain is None else await self._guarded(lambda: client.get_job(chain.current_job_id or chain_id))
        if job is None:
            return
        if job.status not in REPAIRABLE:
            self._tell(f"the job is {job.status}: only one that has failed, expired or was cancelled can be repaired")
            return
        stored = json.dumps(job.input, ensure_ascii=False, default=plain, indent=2)
        explanation = text("The job gets new attempts with this input.")
        answer = await self._ask(f"retry {job.job_type} with another input", explanation, "retry", edit=stored)
        if answer is None:
            return

        async def carry_it_out() -> bool:
            await plan_repair(client, chain_id, answer.value, None)
            await carry_out_repair(client, chain_id, answer.value, None, by=self._by, reason=answer.reason)
            return True

        if await self._guarded(carry_it_out):
            self._tell("retried: 1 chain")

    @work(exclusive=True, group="change")
    async def action_change_all(self, name: str) -> None:
        """All chains that match the filter: a bulk operation."""
        if self._tab != "chains":
            return
        client, where = self._client, self.query_one(Chains).where
        change = next(each for each in CHANGES if each.name == name)
        plan = await self._guarded(lambda: client.plan(change.name, where))
        if plan is None:
            return
        if not plan.number:
            self._tell("no chain matches")
            return
        answer = await self._ask(f"{name} {plan.counted}?", lines(str(plan)), name)
        if answer is None:
            return

        async def begin() -> Any:
            async with client.transaction() as tx:
                return await getattr(client, f"bulk_{name}")(tx, where, by=self._by, reason=answer.reason)

        operation = await self._guarded(begin)
        if operation is not None:
            self._tell(f"begun: {name} {plan.counted}")
            self._do_it_here(operation.id)

    @work(group="operations")
    async def _do_it_here(self, operation: str) -> None:
        """If no worker is alive that could do it."""

        async def carry_on() -> None:
            reasons = (await self._client.why(operation)).reasons
            if any(isinstance(reason, NoWorker) for reason in reasons):
                await carry_out(self._client, operation, f"top-{socket.gethostname()}-{os.getpid()}")

        await self._guarded(carry_on)

    @work(exclusive=True, group="change")
    async def action_pause(self) -> None:
        """Pause what the cursor is on, or resume it."""
        schedule = self._chosen("schedules")
        if schedule is not None:
            await self._pause_schedule(schedule)
            return
        chosen = self._chosen("queues")
        if chosen is None:
            return
        client, target = self._client, target_of(chosen)
        pauses = await self._guarded(client.list_pauses)
        if pauses is None:
            return
        pausing = all(pause.target != target for pause in pauses)
        name = "pause" if pausing else "resume"
        effect = "No worker takes new jobs of it, from now on." if pausing else "Workers take its jobs again."
        answer = await self._ask(f"{name} {target}?", text(effect), name)
        if answer is None:
            return

        async def carry_it_out() -> bool:
            targets = await with_versions(client, [target], paused=not pausing)
            async with client.transaction() as tx:
                for each in targets:
                    await (client.pause if pausing else client.resume)(tx, each, by=self._by, reason=answer.reason)
            return True

        if await self._guarded(carry_it_out):
            self._tell(f"{name}d: {target}")

    async def _pause_schedule(self, name: str) -> None:
        client = self._client
        schedule = await self._guarded(lambda: client.get_schedule(name))
        if schedule is None:
            return
        pausing = schedule.status != "paused"
        ticks: list[Tick] = await self._guarded(lambda: client.preview(name, PREVIEWED)) or []
        explanation = lines("next ticks:\n" + "\n".join(local(tick.at) for tick in ticks))
        if await self._ask(
            f"{'pause' if pausing else 'resume'} {name}?", explanation, "pause" if pausing else "resume"
        ):

            async def carry_it_out() -> bool:
                async with client.transaction() as tx:
                    await (client.pause_schedule if pausing else client.resume_schedule)(tx, name)
                return True

            if await self._guarded(carry_it_out):
                self._tell(f"{'paused' if pausing else 'resumed'}: {name}")

    @work(exclusive=True, group="change")
    async def action_fire(self) -> None:
        """Fire a schedule now, besides its ticks."""
        client, name = self._client, self._chosen("schedules")
        if name is None or await self._ask(f"fire {name} now?", text("Besides its ticks."), "fire") is None:
            return

        async def carry_it_out() -> bool:
            async with client.transaction() as tx:
                await client.trigger_schedule(tx, name)
            return True

        if await self._guarded(carry_it_out):
            self._tell(f"fired: {name}")

    # What all changes share

    async def _ask(self, title: str, explanation: Text, button: str, *, edit: str | None = None) -> Answer | None:
        return await self.push_screen_wait(Question(title, explanation, button, edit=edit))

    async def _guarded(self, act: Callable[[], Awaitable[Any]]) -> Any:
        """None if it failed: the error is shown, and the application goes on."""
        try:
            result = await act()
        except (QueuertError, OSError) as error:
            self.notify(str(error), severity="error", markup=False)
            return None
        self.look()
        return result

    def _tell(self, what: str) -> None:
        self.notify(what, markup=False)
