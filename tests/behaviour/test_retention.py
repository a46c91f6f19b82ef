"""Workers delete what was kept long enough, each by what is stored for a type, and settlements that delete."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import SOON, eventually, patiently
from tests.behaviour.working import begin

from queuert import Attempt, Chain, Client, EntryJob, Handlers, JobError, Keep, Observer, Worker
from queuert.engine.sessions import Sessions
from queuert.records.retention import policy_of

SHORT = Keep(completed=0.05, failed=None)


class Ping(EntryJob[int], name="ping", keep=SHORT):
    fails: bool = False


class Pong(EntryJob[int], name="pong", keep=SHORT):
    pass


class Stays(EntryJob[int], name="stays"):
    pass


class Gone(EntryJob[int], name="gone", keep=Keep(completed=0)):
    pass


class Stuck(EntryJob[int], name="stuck"):
    after: Chain[Ping]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker looks soon, and often."""
    monkeypatch.setattr("queuert.features.retention.service.INTERVAL", (0.02, 0.05))


def handling(*types: Any) -> Handlers[Any]:
    handlers = Handlers[Any]()

    async def handle(attempt: Attempt[Any]) -> int:
        if getattr(attempt.job, "fails", False):
            raise JobError("NO", "it does not work")
        return 1

    for each in types:
        handlers.handles(each)(handle)
    return handlers


async def gone(client: Client[Any], *chains: Chain[Any]) -> bool:
    return all([await client.get_chain(chain) is None for chain in chains])


@pytest.mark.drivers
async def test_a_worker_deletes_what_was_kept_long_enough(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    """Not what failed, not what another one waits for, and not what is kept for longer."""
    caplog.set_level(logging.INFO, "queuert.retention")
    async with setting.connect([Ping, Stays, Stuck]) as client:
        needed = await begin(client, Ping())
        stuck = await begin(client, Stuck(after=needed))
        kept = [needed, stuck, await begin(client, Ping(fails=True)), await begin(client, Stays())]
        short = [await begin(client, Ping()) for _ in range(3)]
        async with Worker(client, handling(Ping, Stays), max_attempts=1, poll_interval=setting.poll_interval):
            await eventually(lambda: gone(client, *short))
        assert [chain.status for chain in [await client.get_chain(each) for each in kept] if chain] == [
            "completed",
            "pending",
            "failed",
            "completed",
        ]
    assert any("chains of ping are deleted some time after their end" in each.message for each in caplog.records)


async def test_two_services_with_disjoint_jobs(setting: Setting) -> None:
    """Each worker prunes by what is stored, also types that it does not know. Without a stored policy, nothing goes."""
    async with setting.connect([Ping, Stays]) as one, setting.connect([Pong]) as two:
        pong = await begin(two, Pong())
        async with two.transaction() as tx, two.take_over(tx, pong) as taken:
            await taken.settle(1)
        async with Worker(one, handling(Ping), poll_interval=setting.poll_interval):
            ping = await begin(one, Ping())
            await eventually(lambda: gone(one, ping))
            assert not await gone(two, pong)  # no worker that handles it was here yet
            # Now one is, for a moment, and stores what it declares. It does not prune itself.
            await two.sessions.run(two.sessions.engine.state.store_policies([policy_of(SHORT, "pong")]))
            await eventually(lambda: gone(two, pong))


async def test_the_policies_of_types_without_a_handler_are_not_stored(setting: Setting) -> None:
    """A service that only starts jobs of another one does not decide how long they are kept."""
    async with setting.connect([Ping, Pong]) as client:
        state = client.sessions.engine.state

        async def stored() -> list[str]:
            return [each.policy.chain_type for each in (await client.sessions.run(state.retention())).types]

        async with Worker(client, handling(Pong), poll_interval=setting.poll_interval):
            await eventually(stored)
        assert await stored() == ["pong"]


class Completions(Observer):
    def __init__(self) -> None:
        self.completed: list[str] = []

    def chain_completed(self, *, chain_id: str, **_: Any) -> None:
        self.completed.append(chain_id)


@pytest.mark.drivers
async def test_a_chain_that_is_deleted_by_its_settlement(setting: Setting) -> None:
    seen = Completions()
    async with setting.connect([Gone], observers=[seen]) as client:
        chains = [await begin(client, Gone()) for _ in range(5)]
        worker = Worker(client, handling(Gone), poll_interval=setting.poll_interval)
        async with worker:
            await eventually(lambda: gone(client, *chains))
            await eventually(lambda: len(seen.completed) == 5)
        assert sorted(seen.completed) == sorted(chain.id for chain in chains)


@pytest.mark.drivers
async def test_the_answer_to_a_settlement_that_deletes_is_lost(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is repeated, finds nothing, and counts as completed: it was."""
    caplog.set_level(logging.INFO, "queuert")
    run, lost = Sessions.run_within, list[str]()

    async def run_within(self: Sessions[Any], limit: Any, program: Any) -> Any:
        answer = await run(self, limit, program)
        if program.__name__ == "settle" and not lost:
            lost.append("settle")
            raise ConnectionResetError("on purpose")
        return answer

    monkeypatch.setattr(Sessions, "run_within", run_within)
    seen = Completions()
    async with setting.connect([Gone], observers=[seen]) as client:
        chain = await begin(client, Gone())
        async with Worker(client, handling(Gone), poll_interval=setting.poll_interval, recovery_backoff=SOON):
            await eventually(lambda: seen.completed == [chain.id])
    assert lost
    assert not any("no longer ours" in record.message for record in caplog.records)


async def test_steps_beside_each_other(setting: Setting) -> None:
    """Three workers and a client prune at once: each chain is deleted once, and none is left."""
    async with setting.connect([Ping]) as client:
        chains = [await begin(client, Ping()) for _ in range(30)]
        workers = [Worker(client, handling(Ping), poll_interval=setting.poll_interval) for _ in range(3)]
        for worker in workers:
            await worker.start()
        try:
            await patiently(workers[0].drain())

            async def pruned() -> bool:
                await client.prune(full=True)
                return await gone(client, *chains)

            await eventually(pruned)
        finally:
            for worker in workers:
                await worker.stop()
