"""The application: tabs, what is read when, and what can be changed."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.widgets import Footer, Input, Static, TabbedContent, TabPane

from queuert.base.statuses import REPAIRABLE
from queuert.client.client import Client
from queuert.errors import QueuertError
from queuert.features.bulk.work import carry_out
from queuert.features.why import NoWorker
from queuert.jobs.filter import Filter
from queuert.operate.changes import BY_NAME
from queuert.operate.repairing import carry_out_repair, plan_repair
from queuert.operate.terminal import plain
from queuert.operate.top import steering
from queuert.operate.top.asking import Answer, Field, Question
from queuert.operate.top.chain import ChainScreen
from queuert.operate.top.panes import Chains, Limits, Overview, Pane, Queues, Schedules, Workers
from queuert.operate.top.showing import load
from queuert.operate.top.tables import Table
from queuert.operate.top.texts import lines, text

EVERY = 2.0
"""Seconds between two looks at the database."""
PANES = {
    "overview": Overview,
    "chains": Chains,
    "workers": Workers,
    "queues": Queues,
    "schedules": Schedules,
    "limits": Limits,
}
TABS_OF = {
    "change_row": ("chains",),
    "change_all": ("chains",),
    "repair_row": ("chains",),
    "pause": ("queues", "schedules", "limits"),
    "fire": ("schedules",),
    "limit": ("limits",),
}
"""Where an action does something, if not everywhere."""
HELP = """\
1 to 6  the tabs
/       filter of chains
Enter   open a chain, or the chains of a type
r c t d retry, cancel, make due now, delete
R C T D the same for all that match the filter
e       edit the input of a chain, and retry it
p       pause it, or resume it
f       fire a schedule now
l u     change a limit, undo that
Space   stop reading the database, or go on
q       quit"""


class Top(App[None]):
    TITLE = "queuert"
    ENABLE_COMMAND_PALETTE = False
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
    #question Input { border: none; height: 1; padding: 0 1; background: $boost; }
    #question Input:focus { background: $primary-background; }
    #question .label { color: $text-muted; }
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
        ("f", "fire", "Fire"),
        ("l", "limit('set')", "Change"),
        ("u", "limit('clear')", "Undo"),
        ("space", "freeze", "Freeze"),
        ("question_mark", "help", "Help"),
        ("q", "quit", "Quit"),
    ]

    def __init__(self, client: Client[Any], by: str, database: str) -> None:
        super().__init__()
        self.client = client
        self.by = by
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
        self.query_one("#types").focus()

    # Reading

    @property
    def _pane(self) -> Pane | None:
        """None: the application is ending, and its panes are gone already."""
        return next(iter(self.query(PANES[self._tab]).results(Pane)), None)

    @property
    def _tab(self) -> str:
        tabs = next(iter(self.query("#tabs").results(TabbedContent)), None)
        return "overview" if tabs is None else tabs.active.removeprefix("tab-") or "overview"

    def _look_again(self) -> None:
        # A look that takes long is not cut short by the next one.
        if not self._frozen and not any(each.group == "look" and each.is_running for each in self.workers):
            self.look()

    @work(exclusive=True, group="look")
    async def look(self) -> None:
        """Read what is on the screen."""
        shown = self.screen if isinstance(self.screen, ChainScreen) else self._pane
        if shown is None or not shown.is_mounted:
            return
        try:
            await load(shown, self.client)
            self._trouble = None
        except (QueuertError, OSError) as error:
            self._trouble = str(error)
        self._show_bar()

    def _show_bar(self) -> None:
        state = " (frozen: Space goes on)" if self._frozen else ""
        bar = text(f"queuert top  {self._database}{state}")
        if self._trouble is not None:
            bar = text(f"not up to date: {self._trouble}", "bold red")
        for screen in self.screen_stack[:1]:  # none, if the application is ending
            for each in screen.query("#bar").results(Static):
                each.update(bar)

    def on_tabbed_content_tab_activated(self) -> None:
        self.refresh_bindings()
        self.look()

    @work(exclusive=True, group="filter")
    async def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.input.id != "filter":
            return
        pane = self.query_one(Chains)
        chain_id = await self.guarded(lambda: pane.filter_changed(self.client, event.value.strip()))
        if chain_id is not None:
            await self.push_screen(ChainScreen(chain_id))
        elif pane.problem is None:
            self.query_one("#chains", Table).focus()

    async def on_data_table_row_selected(self) -> None:
        """Open a chain, or the chains of a type: those that failed, if some did."""
        chain_id, job_type, target = (self._chosen(name) for name in ("chains", "types", "queues"))
        if chain_id is not None:
            await self.push_screen(ChainScreen(chain_id))
        elif job_type is not None:
            failed = job_type in self.query_one(Overview).failed
            self._show_chains(Filter(type=job_type, status="failed" if failed else None))
        elif target is not None and target.startswith("type:"):
            self._show_chains(Filter(type=target.removeprefix("type:")))

    def _show_chains(self, where: Filter) -> None:
        self.action_show("chains")
        line = self.query_one("#filter", Input)
        line.value = str(where)
        self.post_message(Input.Submitted(line, line.value))

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
        """The row with the cursor, if the tab of this table is open."""
        tab = "overview" if name == "types" else name
        return self.query_one(f"#{name}", Table).chosen if self._tab == tab else None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002
        """Only keys that do something on this tab are shown."""
        return action not in TABS_OF or self._tab in TABS_OF[action]

    # Changing

    @work(exclusive=True, group="change")
    async def change(self, name: str, chain_id: str) -> None:
        """Retry, cancel, trigger or delete one chain, after a question."""
        change, client = BY_NAME[name], self.client
        chain = await self.guarded(lambda: client.get_chain(chain_id))
        if chain is None:
            return
        allowed = await self.guarded(lambda: change.allows(client, chain))
        if allowed is None:
            return
        if not allowed:
            self.tell(f"the chain is {chain.status}, and this is for chains that are {change.needs}")
            return
        explanation = Text.assemble(text(change.text), "\n", text(f"{chain.chain_type}  {chain.id}"))
        answer = await self.ask(f"{name} this chain?", explanation, name)
        if answer is None:
            return

        async def carry_it_out() -> bool:
            async with client.transaction() as tx:
                await change.carry_out(client, tx, [chain_id], by=self.by, reason=answer.reason)
            return True

        if await self.guarded(carry_it_out):
            self.tell(f"{change.done}: 1 chain")

    @work(exclusive=True, group="change")
    async def repair(self, chain_id: str) -> None:
        """Edit the input, and retry."""
        client = self.client
        chain = await self.guarded(lambda: client.get_chain(chain_id))
        job = None if chain is None else await self.guarded(lambda: client.get_job(chain.current_job_id or chain_id))
        if job is None:
            return
        if job.status not in REPAIRABLE:
            self.tell(f"the job is {job.status}: only one that has failed, expired or was cancelled can be repaired")
            return
        stored = json.dumps(job.input, ensure_ascii=False, default=plain, indent=2)
        explanation = text("The job gets new attempts with this input.")
        title = f"retry {job.job_type} with another input"

        async def carry_it_out(answer: Answer) -> None:
            await plan_repair(client, chain_id, answer.value, None)
            await carry_out_repair(client, chain_id, answer.value, None, by=self.by, reason=answer.reason)

        if await self.ask_until_done(title, explanation, "retry", carry_it_out, edit=stored):
            self.tell("retried: 1 chain")

    @work(exclusive=True, group="change")
    async def action_change_all(self, name: str) -> None:
        """All chains that match the filter: a bulk operation."""
        if self._tab != "chains":
            return
        client, where = self.client, self.query_one(Chains).where
        change = BY_NAME[name]
        plan = await self.guarded(lambda: client.plan(change.name, where))
        if plan is None:
            return
        if not plan.number:
            self.tell("no chain matches")
            return
        answer = await self.ask(f"{name} {plan.counted}?", lines(str(plan)), name)
        if answer is None:
            return

        async def begin() -> Any:
            async with client.transaction() as tx:
                return await getattr(client, f"bulk_{name}")(tx, where, by=self.by, reason=answer.reason)

        operation = await self.guarded(begin)
        if operation is not None:
            self.tell(f"begun: {name} {plan.counted}")
            self._do_it_here(operation.id)

    @work(group="operations")
    async def _do_it_here(self, operation: str) -> None:
        """If no worker is alive that could do it."""

        async def carry_on() -> None:
            reasons = (await self.client.why(operation)).reasons
            if any(isinstance(reason, NoWorker) for reason in reasons):
                await carry_out(self.client.sessions, operation, f"top-{socket.gethostname()}-{os.getpid()}")

        await self.guarded(carry_on)

    @work(exclusive=True, group="change")
    async def action_pause(self) -> None:
        """Pause what the cursor is on, or resume it."""
        schedule, target = self._chosen("schedules"), self._chosen("queues") or self._chosen("limits")
        if schedule is not None:
            await steering.pause_schedule(self, schedule)
        elif target is not None:
            await steering.pause(self, target)

    @work(exclusive=True, group="change")
    async def action_fire(self) -> None:
        """Fire a schedule now, besides its ticks."""
        name = self._chosen("schedules")
        if name is not None:
            await steering.fire(self, name)

    @work(exclusive=True, group="change")
    async def action_limit(self, action: str) -> None:
        """Change a limit, or undo that."""
        chosen = self._chosen("limits")
        if chosen is not None:
            await (steering.set_limit if action == "set" else steering.clear_limit)(self, chosen)

    # What all changes share

    async def ask(self, title: str, explanation: Text, button: str) -> Answer | None:
        return await self.push_screen_wait(Question(title, explanation, button))

    async def ask_until_done(
        self,
        title: str,
        explanation: Text,
        button: str,
        act: Callable[[Answer], Awaitable[None]],
        *,
        edit: str | None = None,
        fields: Sequence[Field] = (),
    ) -> bool:
        """Ask again if what was filled in is refused: nothing that was typed is lost."""
        answer: Answer | None = None
        problem = ""
        while True:
            question = Question(title, explanation, button, edit=edit, fields=fields, again=answer, problem=problem)
            answer = await self.push_screen_wait(question)
            if answer is None:
                return False
            try:
                await act(answer)
            except (QueuertError, OSError) as error:
                problem = str(error)
            else:
                self.look()
                return True

    async def guarded(self, act: Callable[[], Awaitable[Any]]) -> Any:
        """None if it failed: the error is shown, and the application goes on."""
        try:
            result = await act()
        except (QueuertError, OSError) as error:
            self.notify(str(error), severity="error", markup=False)
            return None
        self.look()
        return result

    def tell(self, what: str) -> None:
        self.notify(what, markup=False)
