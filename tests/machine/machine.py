"""Random programs over the state port, run on the model and on the adapter under test at once.

Every step must give the same answer, or the same error, and leave the same data behind; what an open transaction has
done must not be seen outside it. The model is the memory adapter.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from datetime import timedelta
from typing import Any, ClassVar, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace
from tests.machine.draws import Action, Draws, Known
from tests.machine.driver import AnyStateAdapter, drive
from tests.machine.world import Clock, Difference, Everything, Outcome, Side, Step, difference

from queuert.adapters.memory import sync_memory_state
from queuert.records.listings import PageRequest
from queuert.records.model import ClaimRequest, JobRow, NewJob

T = TypeVar("T")

Factory = Callable[[Clock], AbstractContextManager[AnyStateAdapter]]
"""Opens the adapter under test on empty storage, with this clock. It is closed by the machine."""


@st.composite
def drawn(draw: st.DrawFn, build: Callable[[Draws], T]) -> T:
    """Arguments that fit what the machine knows at this point of the program."""
    machine: StateMachine = draw(st.runner())
    return build(Draws(draw, machine.known))


class StateMachine(RuleBasedStateMachine):
    """Subclass it with the factory of an adapter."""

    factory: ClassVar[Factory]

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.known = Known(self.clock)
        self.storage = ExitStack()
        model = sync_memory_state(clock=self.clock)
        adapter = self.storage.enter_context(type(self).factory(self.clock))
        for operations in (model.operations, adapter.operations):
            operations.unblocked_at_once = 1
        self.model = Side("model", drive(model))
        self.subject = Side("adapter", drive(adapter))
        self.subject.driver.run(adapter.operations.migrate(), inside=False)
        self.committed: Any = None
        """What is to be seen outside the open transaction."""
        self.changed = False
        self.log: list[object] = []

    def teardown(self) -> None:
        with self.storage:
            self.model.driver.close()
            self.subject.driver.close()

    # Steps

    def write(self, step: Step) -> Outcome:
        self.changed = True
        return self.both(step, inside=self.known.depth > 0)

    def read(self, inside: bool, step: Step) -> Outcome:
        """In the open transaction, if there is one; else, or without `inside`, on its own."""
        return self.both(step, inside=inside and self.known.depth > 0)

    def both(self, step: Step, *, inside: bool) -> Outcome:
        self.log.append(step if inside or not self.known.depth else f"outside: {step}")
        expected = self.model.perform(step, inside=inside)
        actual = self.subject.perform(step, inside=inside)
        if expected != actual:
            self.fail(str(step), expected, actual)
        return expected

    def fail(self, step: str, expected: Any, actual: Any) -> None:
        program = "\n".join(str(each) for each in self.log)
        raise Difference(f"{difference(step, expected, actual)}\n\nThe program:\n{program}")

    def everything(self, *, inside: bool) -> Any:
        """What is stored, the same on both sides."""
        outcome = self.both(Everything(), inside=inside)
        self.log.pop()
        return outcome.value[0]

    @invariant()
    def same_data(self) -> None:
        if not self.changed:
            return
        self.changed = False
        self.known.see(self.everything(inside=self.known.depth > 0)[0])
        if self.known.depth:
            self.compare_with_committed("uncommitted changes are seen outside")

    def compare_with_committed(self, otherwise: str) -> None:
        outside = self.everything(inside=False)
        if outside != self.committed:
            self.fail(otherwise, self.committed, outside)

    # One rule that draws what to do: separate rules would be left out of half of the programs each, and a program
    # without claims, or without anything that ends them, does little.

    @initialize(jobs=drawn(Draws.new_jobs))
    def create_first(self, jobs: list[NewJob]) -> None:
        self.write(Step("create_jobs", (jobs,)))

    @rule(action=drawn(Draws.action))
    def act(self, action: Action) -> None:
        getattr(self, action.name)(*action.arguments)

    def claim(self, request: ClaimRequest) -> None:
        numbered = len(self.model.tokens)
        outcome = self.write(Step("claim", (request,)))
        if outcome.error is None:
            claimed: list[tuple[str, JobRow, bool, Any]] = outcome.value[1]
            self.known.claims += [(job[1].id, numbered + n) for n, job in enumerate(claimed)]

    def pass_time(self, by: timedelta) -> None:
        self.log.append(f"{by} later")
        self.clock.advance(by)

    def begin(self) -> None:
        self.committed = self.everything(inside=False)
        self._each("begin")

    def savepoint(self) -> None:
        self._each("savepoint")

    def end_savepoint(self, undo: bool) -> None:
        self._each("roll back to savepoint" if undo else "release savepoint", undo=undo)

    def end(self, undo: bool) -> None:
        while self.known.depth > 1:
            self.end_savepoint(undo)
        self._each("roll back" if undo else "commit", undo=undo)
        if undo:
            self.compare_with_committed("rolled back, but not as before")

    def page_through(self, inside: bool, operation: str, where: Any, page: PageRequest) -> None:
        for _ in range(4):
            outcome = self.read(inside, Step(operation, (where, page)))
            # A record in an outcome is a tuple: its name and its fields.
            rows = outcome.value
            if operation in ("list_jobs", "list_chains") and rows is not None:
                rows = rows[1]
            if outcome.error is not None or not rows:
                return
            page = replace(page, after=_sort_key(operation, where, rows[-1]))

    def _each(self, what: str, *, undo: bool | None = None) -> None:
        """Open or leave a block on both sides."""
        self.log.append(what)
        for side in (self.model, self.subject):
            if undo is not None:
                side.driver.end(undo=undo)
            elif self.known.depth:
                side.driver.savepoint()
            else:
                side.driver.begin()
        self.known.depth += 1 if undo is None else -1
        self.changed = True


def _sort_key(operation: str, where: Any, last: Any) -> str:
    """What the port's docstrings say. A chain in an outcome is a tuple: the record's name, first job, current job."""
    if operation == "list_chains":
        row: JobRow = last[2] if where.by_current else last[1]
        return row.id
    if operation == "list_jobs" and where.by_chain:
        return f"{last.chain_id}/{last.chain_index}"
    return str(last.chain_index) if operation == "list_chain_jobs" else str(last.id)
