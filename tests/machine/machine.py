"""Random programs over the state port, run on the model and on the adapter under test at once.

Every step must give the same answer, or the same error, and leave the same data behind; what an open transaction has
done must not be seen outside it. The model is the memory adapter.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any, ClassVar, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace
from tests.machine.draws import Draws, Known, errors, steps_in_time
from tests.machine.driver import AnyStateAdapter, drive
from tests.machine.world import Clock, Difference, Everything, Outcome, Side, Step, difference

from queuert.adapters.memory import sync_memory_state
from queuert.model import ChainFilter, ClaimRequest, JobFilter, JobRow, Lease, NewJob, PageRequest, Settlement

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
        self.model = Side("model", drive(sync_memory_state(clock=self.clock)))
        adapter = self.storage.enter_context(type(self).factory(self.clock))
        self.subject = Side("adapter", drive(adapter))
        self.subject.driver.run(adapter.operations.migrate(), inside=False)
        self.depth = 0
        """Open blocks: the transaction and its savepoints."""
        self.committed: Outcome | None = None
        """What is to be seen outside the open transaction."""
        self.changed = False
        self.log: list[object] = []

    def teardown(self) -> None:
        with self.storage:
            self.model.driver.close()
            self.subject.driver.close()

    # Steps

    def write(self, operation: str, *arguments: Any, **options: Any) -> Outcome:
        self.changed = True
        return self.both(Step(operation, arguments, options), inside=self.depth > 0)

    def read(self, step: Step, *, inside: bool) -> Outcome:
        """In the open transaction, if there is one; else, or without `inside`, on its own."""
        return self.both(step, inside=inside and self.depth > 0)

    def both(self, step: Step, *, inside: bool) -> Outcome:
        self.log.append(step if inside or not self.depth else f"outside: {step}")
        expected = self.model.perform(step, inside=inside)
        actual = self.subject.perform(step, inside=inside)
        if expected != actual:
            self.fail(str(step), expected, actual)
        return expected

    def fail(self, step: str, expected: Outcome, actual: Outcome) -> None:
        program = "\n".join(str(each) for each in self.log)
        raise Difference(f"{difference(step, expected, actual)}\n\nThe program:\n{program}")

    def each(self, what: str, *, undo: bool | None = None) -> None:
        """Open or leave a block on both sides."""
        self.log.append(what)
        for side in (self.model, self.subject):
            if undo is not None:
                side.driver.end(undo=undo)
            elif self.depth:
                side.driver.savepoint()
            else:
                side.driver.begin()
        self.depth += 1 if undo is None else -1
        self.changed = True

    @invariant()
    def same_data(self) -> None:
        if not self.changed:
            return
        self.changed = False
        everything = self.both(Everything(), inside=self.depth > 0)
        self.log.pop()
        self.known.see(everything.value[0])
        if self.committed is not None:
            outside = self.both(Everything(), inside=False)
            self.log.pop()
            if outside != self.committed:
                self.fail("uncommitted changes are seen outside", self.committed, outside)

    # Jobs

    @initialize(jobs=drawn(Draws.new_jobs))
    def create_first(self, jobs: list[NewJob]) -> None:
        self.write("create_jobs", jobs)

    @rule(jobs=drawn(Draws.new_jobs))
    def create(self, jobs: list[NewJob]) -> None:
        self.write("create_jobs", jobs)

    @rule(request=drawn(Draws.claim))
    def claim(self, request: ClaimRequest) -> None:
        numbered = len(self.model.tokens)
        outcome = self.write("claim", request)
        if outcome.error is None:
            claimed: list[tuple[str, JobRow, bool, Any]] = outcome.value[1]
            self.known.claims += [(job[1].id, numbered + n) for n, job in enumerate(claimed)]

    # More than one rule, because more depends on it than on others.
    @rule(request=drawn(Draws.claim))
    def claim_more(self, request: ClaimRequest) -> None:
        self.claim(request)

    @rule(settlements=drawn(Draws.settlements))
    def settle(self, settlements: list[Settlement]) -> None:
        self.write("settle", settlements)

    @rule(settlements=drawn(Draws.settlements))
    def settle_more(self, settlements: list[Settlement]) -> None:
        self.write("settle", settlements)

    @precondition(lambda self: self.known.claims)
    @rule(leases=drawn(Draws.leases))
    def renew(self, leases: list[Lease]) -> None:
        self.write("renew", leases)

    @precondition(lambda self: self.known.claims)
    @rule(wanted=drawn(Draws.types), ignored=drawn(Draws.ignored), limit=st.sampled_from([10, 1, 2, 0]), error=errors)
    def reap(self, wanted: list[str], ignored: list[str], limit: int, error: bytes) -> None:
        self.write("reap", wanted, ignored, limit, error)

    @rule(ids=drawn(Draws.job_ids))
    def trigger(self, ids: list[str]) -> None:
        self.write("trigger", ids)

    @precondition(lambda self: self.known.failed)
    @rule(ids=drawn(Draws.failed_ids))
    def retry(self, ids: list[str]) -> None:
        self.write("retry", ids)

    @rule(ids=drawn(Draws.chain_ids), cascade=st.booleans())
    def delete(self, ids: list[str], cascade: bool) -> None:
        self.write("delete_chains", ids, cascade=cascade)

    # Time and transactions

    @rule(by=steps_in_time)
    def pass_time(self, by: Any) -> None:
        self.log.append(f"{by} later")
        self.clock.advance(by)

    @precondition(lambda self: not self.depth)
    @rule()
    def begin(self) -> None:
        self.committed = self.both(Everything(), inside=False)
        self.log.pop()
        self.each("begin")

    @precondition(lambda self: 0 < self.depth < 4)
    @rule()
    def savepoint(self) -> None:
        self.each("savepoint")

    @precondition(lambda self: self.depth > 1)
    @rule(undo=st.booleans())
    def end_savepoint(self, undo: bool) -> None:
        self.each("roll back to savepoint" if undo else "release savepoint", undo=undo)

    @precondition(lambda self: self.depth > 0)
    @rule(undo=st.booleans())
    def end(self, undo: bool) -> None:
        while self.depth > 1:
            self.each("roll back to savepoint" if undo else "release savepoint", undo=undo)
        self.each("roll back" if undo else "commit", undo=undo)
        if undo and self.committed is not None:
            restored = self.both(Everything(), inside=False)
            if restored != self.committed:
                self.fail("rolled back, but not as before", self.committed, restored)
        self.committed = None

    # Queries

    @rule(step=drawn(Draws.query), inside=st.booleans())
    def look(self, step: Step, inside: bool) -> None:
        self.read(step, inside=inside)

    @rule(where=drawn(Draws.job_filter), page=drawn(Draws.page), inside=st.booleans())
    def page_through_jobs(self, where: JobFilter, page: PageRequest, inside: bool) -> None:
        self._pages("list_jobs", where, page, _id, inside=inside)

    @rule(where=drawn(Draws.chain_filter), page=drawn(Draws.page), inside=st.booleans())
    def page_through_chains(self, where: ChainFilter, page: PageRequest, inside: bool) -> None:
        sort_key = _chain_id if where.status is None else _current_id
        self._pages("list_chains", where, page, sort_key, inside=inside)

    @rule(chain_id=drawn(Draws.chain_id), page=drawn(Draws.page), inside=st.booleans())
    def page_through_one_chain(self, chain_id: str, page: PageRequest, inside: bool) -> None:
        self._pages("list_chain_jobs", chain_id, page, _chain_index, inside=inside)
        self._pages("list_blocked_jobs", chain_id, page, _id, inside=inside)

    def _pages(
        self, operation: str, where: Any, page: PageRequest, sort_key: Callable[[Any], str], *, inside: bool
    ) -> None:
        for _ in range(4):
            outcome = self.read(Step(operation, (where, page)), inside=inside)
            if outcome.error is not None or not outcome.value:
                return
            page = replace(page, after=sort_key(outcome.value[-1]))


def _id(row: JobRow) -> str:
    return row.id


def _chain_index(row: JobRow) -> str:
    return str(row.chain_index)


# A chain in an outcome is a tuple: the record's name, its first and its current job.


def _chain_id(chain: tuple[str, JobRow, JobRow]) -> str:
    return chain[1].id


def _current_id(chain: tuple[str, JobRow, JobRow]) -> str:
    return chain[2].id
