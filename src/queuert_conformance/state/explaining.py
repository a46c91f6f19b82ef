"""circumstances: everything that decides whether a claim would take a job, in one snapshot."""

from __future__ import annotations

from queuert.records.circumstances import AHEAD, BLOCKERS_SHOWN, BlockingRow, Circumstances
from queuert.records.model import When
from queuert.records.pauses import PauseTarget
from queuert_conformance.checks import check, equal, present, sooner_than
from queuert_conformance.state.build import HOUR, TASK, completed, failed, new_job, queue, request, waiting_for
from queuert_conformance.state.registry import about
from queuert_conformance.state.store import Store, case, driver_case


async def circumstances(store: Store, chain_id: str) -> Circumstances:
    return present(await store.circumstances(chain_id), "circumstances of a stored chain")


@case
async def of_an_unknown_chain(store: Store) -> None:
    """There are none for an id that does not exist, or that is not the id of a chain."""
    equal(await store.circumstances(new_job().id), None, "circumstances")
    equal(await store.circumstances("no such thing"), None, "circumstances")


@case
async def of_a_due_job(store: Store) -> None:
    """For a due job: its chain, the workers, what runs, and what is due."""
    await store.register("one", about=about(TASK, "other"))
    await store.register("two", about=about("b"))
    running = [await store.running("other"), await store.running("other")]
    ids = [await store.start(), await store.start("other", priority=3), await store.start("b")]
    found = await circumstances(store, ids[0])
    equal(found.chain, await store.chain(ids[0]), "the chain")
    check(abs((found.now - found.chain.first.created_at).total_seconds()) < 60, "now must be the database's time")
    equal([row.id for row in found.workers], ["one"], "workers that have a handler for it")
    equal(found.workers[0].about, about(TASK, "other"), "what it tells")
    equal((found.workers[0].state, found.others_alive), ("alive", 1), "who is alive")
    group = found.running[0]
    equal((len(found.running), group.type_name, group.number), (1, "other", 2), "running jobs")
    equal(group.worker, running[0].job.leased_by, "their worker")
    equal((group.oldest_id, group.oldest_at), (running[0].job.id, running[0].job.last_attempt_at), "the oldest")
    equal([(each.type_name, each.id) for each in found.due], [("other", ids[1]), (TASK, ids[0])], "due jobs")
    equal((found.due[0].priority, found.due[1].scheduled_at), (3, found.chain.first.scheduled_at), "their order")
    equal(found.last_handled, None, "where it was handled by a worker that is gone")


@case
async def of_a_due_job_that_waits_behind_others(store: Store) -> None:
    """Only the first due jobs of each type are read, in the order of claims."""
    await store.register("one", about=about(TASK))
    jobs = [new_job(priority=200 - number) for number in range(AHEAD + 5)]
    await store.create(*jobs)
    found = await circumstances(store, jobs[0].id)
    equal([each.id for each in found.due], [job.id for job in reversed(jobs)][:AHEAD], "due jobs")


@case
async def of_a_job_that_became_due(store: Store) -> None:
    """A job is due when its time has come, before any claim has noticed."""
    await store.register("one", about=about(TASK))
    with sooner_than(0.05):
        chain_id = await store.start(schedule=When(after=0.05))
        found = await circumstances(store, chain_id)
        equal((found.due, found.running), ([], []), "due and running jobs, before")
    await store.elapse(0.1)
    equal([each.id for each in (await circumstances(store, chain_id)).due], [chain_id], "due jobs")


@driver_case
async def of_a_blocked_job(store: Store) -> None:
    """For a blocked job: the chains that are not completed, those that ended badly first."""
    chains = [await store.start("b") for _ in range(4)]
    waiting = await store.start(blockers=waiting_for(*chains, chain_type="b"))
    claimed = (await store.claim(request(queue("b"), limit=3))).jobs
    await store.settle(completed(claimed[0]), failed(claimed[1]))
    found = await circumstances(store, waiting)
    by_id = {claimed[1].job.id: "failed", claimed[2].job.id: "running"}
    expected = [BlockingRow(each, "b", by_id.get(each, "pending")) for each in chains if each != claimed[0].job.id]  # type: ignore[arg-type]
    expected.sort(key=lambda each: each.status != "failed")
    equal(found.blockers, expected, "chains that it waits for")
    equal((found.due, found.running), ([], []), "due and running jobs")


@case
async def of_a_job_with_many_blockers(store: Store) -> None:
    """Not all of very many chains are listed."""
    blockers = [new_job("b") for _ in range(BLOCKERS_SHOWN + 1)]
    await store.create(*blockers)
    waiting = await store.start(blockers=waiting_for(*(job.id for job in blockers), chain_type="b"))
    found = await circumstances(store, waiting)
    equal([each.chain_id for each in found.blockers], [job.id for job in blockers][:BLOCKERS_SHOWN], "chains")


@driver_case
async def of_a_running_job(store: Store) -> None:
    """For a running job: the worker that runs it, whatever that has handlers for."""
    await store.register("one", about=about("b"))
    await store.start()
    (claimed,) = (await store.claim(request(queue(TASK), worker="one"))).jobs
    found = await circumstances(store, claimed.job.id)
    equal([row.id for row in found.workers], ["one"], "workers")
    equal((found.chain.current.leased_by, found.chain.current.status), ("one", "running"), "the job")


@case
async def of_a_type_that_was_handled(store: Store) -> None:
    """Where the type was handled is told, also if the row of the worker is gone."""
    await store.register("one", about=about(TASK, host="first", release="r1"))
    await store.register("old")
    await store.forget("one")
    chain_id = await store.start(schedule=When(after=HOUR))
    found = await circumstances(store, chain_id)
    handled = present(found.last_handled, "where it was handled")
    equal((handled.type_name, handled.host, handled.release), (TASK, "first", "r1"), "where it was handled")
    equal([(row.id, row.about) for row in found.workers], [("old", None)], "a worker that does not tell its types")


@driver_case
async def of_what_is_paused(store: Store) -> None:
    """All pauses are told, whatever they cover, but not those that have ended."""
    chain_id = await store.start(schedule=When(after=HOUR))
    equal((await circumstances(store, chain_id)).pauses, [], "pauses, before")
    made = [
        await store.pause(PauseTarget("type", TASK), until=When(after=HOUR), reason="a reason", by="me"),
        await store.pause(PauseTarget("queue", "other"), cancel_running=True),
        await store.pause(PauseTarget("everything")),
    ]
    await store.pause(PauseTarget("type", "b"), until=When(after=0.05))
    await store.elapse(0.1)
    equal((await circumstances(store, chain_id)).pauses, list(reversed(made)), "pauses")


@driver_case
async def in_a_transaction(store: Store) -> None:
    """In a transaction, its own changes are seen."""
    async with store.rolled_back() as tx:
        chain_id = await store.start(tx=tx)
        check(await store.circumstances(chain_id, tx=tx) is not None, "the chain must be seen inside")
    equal(await store.circumstances(chain_id), None, "circumstances, after the rollback")


@case
async def of_a_job_that_is_being_freed(store: Store) -> None:
    """A job whose chains are all completed is blocked until `continue_unblocking` frees it."""
    source = await store.start("b")
    ids = [await store.start(blockers=waiting_for(source, chain_type="b")) for _ in range(2)]
    store.operations.unblocked_at_once = 1
    await store.settle(completed(await store.claim_one("b")))
    found = await circumstances(store, ids[1])
    equal((found.chain.current.status, found.blockers), ("blocked", []), "status, and chains that it waits for")
