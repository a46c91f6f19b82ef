"""Starts that change, hold or find the chain that waits under their key, against whatever else meets it there.

Each pair is forced into the order that hurts: one side holds its locks until the other one waits for them, or has gone
past them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from tests.adapters.postgres.scenes import Isolation, Scene, Session, conflict, open_scene
from tests.support.postgres import Databases

from queuert.errors import ChainNotFound
from queuert.records.model import NOW, Created, NewJob
from queuert_conformance.state.build import HOUR, completed, key, later, new_job, put_back, queue, request, waiting_for
from queuert_conformance.state.dedup_waiting import debounced, throttled

WAITING = key("k", scope="waiting")


@pytest.fixture
async def scene(postgres: Databases) -> AsyncIterator[Scene]:
    async with open_scene(postgres) as scene:
        yield scene


async def waiting_chain(scene: Scene, **fields: Any) -> str:
    """A chain that waits under the key, and is due."""
    job = debounced(wait=0, **fields)
    await scene.start(job)
    return job.id


def start(scene: Scene, session: Session, *jobs: NewJob) -> asyncio.Task[list[Created]]:
    return scene.go(session.run_alone(scene.operations.create_jobs(jobs)))


async def change(scene: Scene, *texts: str) -> None:
    """Change rows by hand."""
    session = await (await scene.session()).begin()
    for text in texts:
        await session.connection.execute(text)
    await session.commit()


async def inputs(scene: Scene) -> dict[str, bytes]:
    """What the stored chains would run with."""
    ids = scene.watch("SELECT id::text FROM queuert_job ORDER BY id")
    return {job.id: job.input for job in await scene.jobs(ids)}


# Against a claim


@pytest.mark.parametrize("collapse", ["replace", "postpone", "hold", None])
async def test_a_claim_passes_a_chain_that_an_open_start_has_found(scene: Scene, collapse: Any) -> None:
    """Else its handler would run with the old input, or would not see what the transaction wrote."""
    chain = await waiting_chain(scene)
    user = await (await scene.session()).begin()
    job = debounced(collapse, wait=0, input=b"2") if collapse else new_job(dedup=WAITING)
    (made,) = await user.start(job)
    assert (made.chain_id, made.deduplicated) == (chain, True)
    assert await scene.claim() == []
    await user.commit()
    (claimed,) = await scene.claim()
    assert (claimed.job.id, claimed.job.input) == (chain, b"2" if collapse == "replace" else b'{"order":7}')


@pytest.mark.parametrize("dedup", [None, WAITING], ids=["debounce", "waiting"])
async def test_a_start_waits_for_a_claim_and_then_starts_another_chain(scene: Scene, dedup: Any) -> None:
    chain = await waiting_chain(scene)
    claiming, user = await scene.sessions(2)
    await claiming.begin()
    await claiming.run(scene.operations.claim(request()))
    following = new_job(dedup=dedup) if dedup else debounced()
    starting = start(scene, user, following)
    await scene.blocked(user, by=claiming)
    await claiming.commit()
    (made,) = await starting
    assert (made.chain_id, made.existing) == (following.id, None)
    assert scene.watch("SELECT chain_id::text FROM queuert_key") == [following.id]
    assert (await scene.chain(chain)).current.status == "running"


async def test_a_claim_that_is_rolled_back(scene: Scene) -> None:
    chain = await waiting_chain(scene)
    claiming, user = await scene.sessions(2)
    await claiming.begin()
    await claiming.run(scene.operations.claim(request()))
    starting = start(scene, user, debounced(input=b"2"))
    await scene.blocked(user, by=claiming)
    await claiming.rollback()
    (made,) = await starting
    assert (made.chain_id, made.replaced) == (chain, True)


async def test_a_start_does_not_wait_for_a_handler_that_holds_the_chain(scene: Scene) -> None:
    await waiting_chain(scene)
    (claimed,) = await scene.claim()
    handler = await (await scene.session()).begin()
    assert claimed.job.token is not None
    await handler.run(scene.operations.hold(claimed.job.id, claimed.job.token))
    following = debounced()
    (made,) = await scene.start(following)
    assert made.chain_id == following.id
    # The handler itself finds the chain that waits, while it holds its own.
    (made,) = await handler.start(debounced(input=b"3"))
    assert (made.chain_id, made.replaced) == (following.id, True)
    await handler.commit()


# Against cancel, delete, trigger, retry


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "rollback"])
async def test_cancel_and_a_new_start_in_one_transaction(scene: Scene, commit: bool) -> None:
    """It holds the chain and wants the key. A start that locked the key first would deadlock with it."""
    chain = await waiting_chain(scene)
    user, other = await scene.sessions(2)
    await user.begin()
    await user.run(scene.operations.cancel_chains([chain], cascade=False))
    starting = start(scene, other, debounced(input=b"2"))
    await scene.blocked(other, by=user)
    replacement = new_job(dedup=key("k"))
    await user.start(replacement)
    await (user.commit() if commit else user.rollback())
    (made,) = await starting
    assert (made.chain_id, made.replaced) == (replacement.id if commit else chain, True)
    assert (await inputs(scene))[made.chain_id] == b"2"
    assert await scene.deadlocks() == 0


async def test_a_start_that_takes_the_key_away_and_then_cancels(scene: Scene) -> None:
    """It holds the key and wants the chain. A start that locked the key of a chain that it has would deadlock."""
    chain = await waiting_chain(scene)
    user, other = await scene.sessions(2)
    await user.begin()
    taker = new_job(dedup=key("k", exclude=[chain]))
    await user.start(taker)
    await other.begin()
    (made,) = await other.start(debounced(input=b"2"))
    assert (made.chain_id, made.replaced) == (chain, True)  # it came first
    cancelling = scene.go(user.run(scene.operations.cancel_chains([chain], cascade=False)))
    await scene.blocked(user, by=other)
    await other.commit()
    await cancelling
    await user.commit()
    assert (await scene.job(chain)).status == "cancelled"
    assert scene.watch("SELECT chain_id::text FROM queuert_key") == [taker.id]
    assert await scene.deadlocks() == 0


async def test_deletion_waits_for_the_start_and_the_start_for_deletion(scene: Scene) -> None:
    chain = await waiting_chain(scene)
    user, deleter = await scene.sessions(2)
    await user.begin()
    await user.start(debounced(input=b"2"))
    deleting = scene.go(deleter.run_alone(scene.operations.delete_chains([chain], cascade=False)))
    await scene.blocked(deleter, by=user)
    await user.commit()
    assert [each.first.input for each in (await deleting).chains] == [b"2"]
    chain = await waiting_chain(scene)
    await deleter.begin()
    await deleter.delete(chain)
    following = debounced()
    starting = start(scene, user, following)
    await scene.blocked(user, by=deleter)
    await deleter.commit()
    (made,) = await starting
    assert (made.chain_id, made.existing) == (following.id, None)


async def test_a_trigger_waits_and_then_makes_the_new_input_due(scene: Scene) -> None:
    job = debounced()
    await scene.start(job)
    user, operator = await scene.sessions(2)
    await user.begin()
    await user.start(debounced(input=b"2"))
    triggering = scene.go(operator.run_alone(scene.operations.trigger([job.id])))
    await scene.blocked(operator, by=user)
    await user.commit()
    await triggering
    (claimed,) = await scene.claim()
    assert claimed.job.input == b"2"


async def test_a_chain_that_was_triggered_meanwhile_waits_anew(scene: Scene) -> None:
    job = debounced()
    await scene.start(job)
    user, operator = await scene.sessions(2)
    await operator.begin()
    await operator.run(scene.operations.trigger([job.id]))
    starting = start(scene, user, debounced(input=b"2"))
    await scene.blocked(user, by=operator)
    await operator.commit()
    (made,) = await starting
    assert made.replaced
    assert await scene.claim() == []


async def test_a_retry_revives_a_chain_that_has_begun(scene: Scene) -> None:
    chain = await waiting_chain(scene)
    (claimed,) = await scene.claim()
    await scene.settle(put_back(claimed))
    (claimed,) = await scene.claim()
    await scene.run(scene.operations.settle([completed(claimed)]))
    operator, user = await scene.sessions(2)
    await operator.begin()
    await operator.run(scene.operations.retry([chain]))
    following = debounced()
    (made,) = await start(scene, user, following)
    await operator.commit()
    assert made.chain_id == following.id


async def test_a_chain_that_moves_from_later_to_ready(scene: Scene) -> None:
    """A claim promotes the chain while a start waits for it."""
    chain = await waiting_chain(scene, input=b"1")
    past = "UPDATE queuert_{} SET scheduled_at = scheduled_at - interval '1 s' WHERE id = '{}'"
    move = "WITH moved AS (DELETE FROM queuert_ready RETURNING *) INSERT INTO queuert_later " \
        "SELECT type_name, scheduled_at, id, priority FROM moved"  # fmt: skip
    await change(scene, move, past.format("later", chain), past.format("job", chain))
    claiming, user = await scene.sessions(2)
    await claiming.begin()
    await claiming.run(scene.operations.claim(request(queue("task", limit=0))))
    starting = start(scene, user, debounced(input=b"2"))
    await scene.blocked(user, by=claiming)
    await claiming.commit()
    (made,) = await starting
    assert (made.chain_id, made.replaced) == (chain, True)


# Against each other


async def test_two_starts_replace_one_chain_one_after_the_other(scene: Scene) -> None:
    chain = await waiting_chain(scene)
    first, second = await scene.sessions(2)
    await first.begin()
    await first.start(debounced(input=b"2"))
    starting = start(scene, second, debounced(input=b"3"))
    await scene.blocked(second, by=first)
    await first.commit()
    (made,) = await starting
    assert (made.chain_id, made.replaced) == (chain, True)
    assert await inputs(scene) == {chain: b"3"}


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "rollback"])
@pytest.mark.parametrize("used", [False, True], ids=["new key", "used key"])
async def test_two_first_starts(scene: Scene, commit: bool, used: bool) -> None:
    """The second waits for the key, and must then lock the chain before it: it begins again."""
    if used:
        await scene.settle(completed(await waiting_chain(scene)))
    first, second = await scene.sessions(2)
    one, two = debounced(input=b"1"), debounced(input=b"2")
    await first.begin()
    await first.start(one)
    starting = start(scene, second, two)
    await scene.blocked(second, by=first)
    await (first.commit() if commit else first.rollback())
    (made,) = await starting
    assert (made.chain_id, made.replaced) == ((one.id, True) if commit else (two.id, False))
    assert (await inputs(scene))[made.chain_id] == b"2"


async def test_a_start_that_begins_again_has_released_the_key(scene: Scene) -> None:
    """It waited for the key, found a chain there, and now waits for that chain: whoever holds it can have the key."""
    first, second, third = await scene.sessions(3)
    one = debounced(wait=0)
    await first.begin()
    await first.start(one)
    starting = start(scene, second, debounced(input=b"2"))
    await scene.blocked(second, by=first)
    await third.begin()
    await first.run(scene.operations.trigger([one.id]))  # more of the first transaction: it still holds the chain
    await first.commit()
    (made,) = await starting
    assert (made.chain_id, made.replaced) == (one.id, True)
    await third.run(scene.operations.cancel_chains([one.id], cascade=False))
    waiting = start(scene, second, debounced(input=b"3"))
    await scene.blocked(second, by=third)
    taken = new_job(dedup=key("k"))
    await third.start(taken)
    await third.commit()
    (made,) = await waiting
    assert (made.chain_id, made.replaced) == (taken.id, True)


async def test_starts_that_find_a_waiting_chain_do_not_wait_for_each_other(scene: Scene) -> None:
    chain = await waiting_chain(scene)
    users = await scene.sessions(5)
    for user in users:
        await user.begin()
        (made,) = await user.start(new_job(dedup=WAITING))
        assert made.chain_id == chain
    changer = await scene.session()
    changing = start(scene, changer, debounced(input=b"2"))
    await scene.blocked(changer, by=users[0])
    for user in users:
        await user.commit()
    (made,) = await changing
    assert made.replaced


async def test_starts_that_overlap_do_not_keep_a_chain_from_beginning(scene: Scene) -> None:
    """A chain that has been due for five seconds is found only if no other start holds it."""
    chain = await waiting_chain(scene)
    await change(
        scene,
        "UPDATE queuert_job SET scheduled_at = scheduled_at - interval '6 s'",
        "UPDATE queuert_ready SET scheduled_at = scheduled_at - interval '6 s'",
    )
    first, second = await scene.sessions(2)
    await first.begin()
    assert (await first.start(new_job(dedup=WAITING)))[0].chain_id == chain
    await second.begin()
    following = new_job(dedup=WAITING)
    assert (await second.start(following))[0].chain_id == following.id
    await first.commit()
    (claimed,) = await scene.claim()
    assert claimed.job.id == chain
    await second.commit()


async def test_a_blocked_chain_is_freed_while_a_start_finds_it(scene: Scene) -> None:
    source = new_job("source")
    blocked = new_job(dedup=WAITING, blockers=waiting_for(source.id, chain_type="source"))
    await scene.start(source, blocked)
    user, worker = await scene.sessions(2)
    # The start comes first: the completion waits for it.
    await user.begin()
    assert (await user.start(new_job(dedup=WAITING)))[0].chain_id == blocked.id
    settling = scene.go(worker.run_alone(scene.operations.settle([completed(source.id)])))
    await scene.blocked(worker, by=user)
    await user.rollback()
    await settling
    # The completion comes first: the start waits, and finds a chain that is pending by then.
    source = new_job("source")
    blocked = new_job(dedup=key("l", scope="waiting"), blockers=waiting_for(source.id, chain_type="source"))
    await scene.start(source, blocked)
    await worker.begin()
    await worker.settle(completed(source.id))
    starting = start(scene, user, new_job(dedup=key("l", scope="waiting")))
    await scene.blocked(user, by=worker)
    await worker.commit()
    (made,) = await starting
    assert (made.chain_id, made.status) == (blocked.id, "pending")


async def test_a_held_chain_is_merged_once(scene: Scene) -> None:
    """Two merges: the second one merges with the result of the first."""
    chain = await waiting_chain(scene, input=b"[1]")
    first, second = await scene.sessions(2)
    await first.begin()
    await first.start(debounced("hold", input=b"[2]"))
    holding = scene.go(_held(second))
    await scene.blocked(second, by=first)
    await first.run(scene.operations.replace_waiting([debounced("hold", id=chain, input=b"[1,2]")]))
    await first.commit()
    made = await holding
    assert made.existing is not None
    assert made.existing.first.input == b"[1,2]"
    await second.rollback()


async def _held(session: Session) -> Created:
    await session.begin()
    (made,) = await session.start(debounced("hold", input=b"[3]"))
    return made


async def test_two_throttled_starts_make_one_chain_for_the_next_period(scene: Scene) -> None:
    leading = throttled()
    await scene.start(leading)
    first, second = await scene.sessions(2)
    one, two = throttled(input=b"1"), throttled(input=b"2")
    await first.begin()
    await first.start(one)
    starting = start(scene, second, two)
    await scene.blocked(second, by=first)
    await first.commit()
    (made,) = await starting
    assert (made.chain_id, made.replaced) == (one.id, True)
    assert len(await inputs(scene)) == 2


async def test_a_throttled_start_that_waits_until_the_chain_of_the_period_has_begun(scene: Scene) -> None:
    """The chain was not due when the start began to wait for it. Now it runs: the next one is due a period later."""
    leading, second, third = throttled(), throttled(), throttled()
    await scene.start(leading)
    await scene.start(second)
    first, waiting = await scene.sessions(2)
    await first.begin()
    await first.start(throttled(input=b"2"))
    starting = start(scene, waiting, third)
    await scene.blocked(waiting, by=first)
    moment = await first.connection.fetchval("SELECT clock_timestamp()")
    for text in (
        "UPDATE queuert_key SET started_at = $1 WHERE chain_id = $2",
        "UPDATE queuert_later SET scheduled_at = $1 WHERE id = $2",
        "UPDATE queuert_job SET scheduled_at = $1 WHERE id = $2",
    ):
        await first.connection.execute(text, moment, second.id)
    claimed = (await first.run(scene.operations.claim(request(queue("task", limit=2))))).jobs
    assert second.id in {each.job.id for each in claimed}
    await first.commit()
    (made,) = await starting
    assert made.chain_id == third.id
    assert (await scene.job(third.id)).scheduled_at == moment + timedelta(seconds=HOUR)


@pytest.mark.parametrize("isolation", ["repeatable_read", "serializable"])
async def test_under_a_snapshot_the_loser_is_told_to_try_again(scene: Scene, isolation: Isolation) -> None:
    await waiting_chain(scene)
    first, second = await scene.sessions(2)
    await first.begin()
    await second.begin(isolation)
    await first.start(debounced(input=b"2"))
    waiting = scene.go(second.start(debounced(input=b"3")))
    await scene.blocked(second, by=first)
    await first.commit()
    assert await conflict(waiting) == "40001"
    await second.rollback()


async def test_a_start_that_finds_a_waiting_chain_is_one_round_trip_and_writes_no_row(scene: Scene) -> None:
    await waiting_chain(scene)
    everything = "SELECT (SELECT array_agg((j.xmin, j.ctid)::text) FROM queuert_job AS j), " \
        "(SELECT array_agg((k.xmin, k.ctid)::text) FROM queuert_key AS k)"  # fmt: skip
    before = scene.watch(everything)
    program = scene.operations.create_jobs([new_job(dedup=WAITING)])
    with pytest.raises(StopIteration):
        program.send(await scene.provider.execute(None, next(program)))
    assert scene.watch(everything) == before


async def _rounds(scene: Scene, sessions: Sequence[Session], rounds: int) -> None:
    """Random operations on few keys, several in some transactions, in the order in which they do not deadlock."""

    def keyed(text: str) -> NewJob:
        kind = random.choice(["replace", "postpone", "hold", "trail", "waiting", "incomplete"])
        if kind in ("waiting", "incomplete"):
            return new_job(dedup=key(text, scope=kind))
        trail = kind == "trail"
        dedup = key(text, scope="any" if trail else "waiting", window=HOUR)
        return new_job(dedup=dedup, collapse=kind, schedule=NOW if trail else later(0.001))

    async def one(session: Session) -> None:
        for _ in range(rounds):
            operations = scene.operations
            ids = scene.watch("SELECT chain_id::text FROM queuert_key")
            match random.randrange(8):
                case 0 | 1 | 2:
                    texts = random.sample("abc", random.randint(1, 3))
                    await session.run_alone(operations.create_jobs([keyed(text) for text in texts]))
                case 3:
                    text = random.choice("abc")
                    holders = scene.watch("SELECT chain_id::text FROM queuert_key WHERE key = %s", text)
                    await session.begin()
                    with suppress(ChainNotFound):
                        await session.run(operations.cancel_chains(holders, cascade=False))
                    await session.start(keyed(text))
                    await session.commit()
                case 4:
                    await session.run_alone(operations.trigger(ids))
                case 5 if ids:
                    await session.run_alone(operations.delete_chains([random.choice(ids)], cascade=False))
                case 6:
                    await session.run_alone(operations.set_priority(ids, random.randrange(5)))
                case _:
                    claimed = (await session.run_alone(operations.claim(request(limit=2)))).jobs
                    await session.run_alone(operations.settle([completed(each) for each in claimed]))

    await asyncio.gather(*(one(session) for session in sessions))


@pytest.mark.parametrize("rounds", [30, pytest.param(2000, marks=pytest.mark.soak)])
async def test_random_rounds_do_not_deadlock(scene: Scene, rounds: int) -> None:
    await _rounds(scene, await scene.sessions(4), rounds)
    scene.check()
    assert await scene.deadlocks() == 0
