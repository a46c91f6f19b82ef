"""Transactions, savepoints and the provider's own guarantees."""

from __future__ import annotations

from queuert.errors import JobIdExists
from queuert_conformance.checks import check, equal, raises
from queuert_conformance.state.build import completed, continued, key, new_job, next_job
from queuert_conformance.state.store import Store, driver_case


class Boom(Exception):
    """An error of the user's own."""


@driver_case
async def a_block_that_ends_well_commits(store: Store) -> None:
    """What was done in a transaction is stored after its commit."""
    async with store.transaction() as tx:
        job = await store.start(tx=tx)
        check(await store.driver.in_transaction(tx), "a transaction must be open")
        await store.driver.check(tx)
    equal(await store.statuses(job), ["pending"], "the job")


@driver_case
async def a_block_that_fails_rolls_back(store: Store) -> None:
    """An error rolls everything back and is raised unchanged."""
    error = Boom("as it is")
    before, job = await store.start(), new_job()
    with raises(Boom, "the error of the block") as caught:
        async with store.transaction() as tx:
            await store.create(job, tx=tx)
            await store.finish(before, tx=tx)
            raise error
    check(caught.error is error, "the error must be raised unchanged")
    equal(await store.statuses(before, job.id), ["pending", None], "the jobs")


@driver_case
async def a_transaction_sees_its_own_writes(store: Store) -> None:
    """Every operation in a transaction sees what was done in it before."""
    async with store.transaction() as tx:
        job = await store.start(dedup=key("k"), tx=tx)
        equal(await store.statuses(job, tx=tx), ["pending"], "reading")
        equal([row.id for row in await store.list_jobs(tx=tx)], [job], "listing")
        claimed = await store.claim_one(tx=tx)
        following = next_job(claimed.job)
        await store.settle(continued(claimed, following), tx=tx)
        equal((await store.chain(job, tx=tx)).current.id, following.id, "current job")
        equal([each.first.id for each in (await store.delete(job, tx=tx)).chains], [job], "deleted")
        equal(await store.list_jobs(tx=tx), [], "listing at the end")
    equal(await store.list_jobs(), [], "stored jobs")


@driver_case
async def a_savepoint_is_kept(store: Store) -> None:
    """What was done in a successful savepoint commits with its transaction."""
    async with store.transaction() as tx:
        async with store.savepoint(tx):
            job = await store.start(tx=tx)
        check(await store.driver.in_transaction(tx), "the transaction must be open after the savepoint")
    equal(await store.statuses(job), ["pending"], "the job")


@driver_case
async def a_savepoint_goes_with_its_transaction(store: Store) -> None:
    """What was done in a successful savepoint is undone if the transaction is rolled back."""
    async with store.rolled_back() as tx, store.savepoint(tx):
        job = await store.start(tx=tx)
    equal(await store.statuses(job), [None], "the job")


@driver_case
async def a_savepoint_that_fails_is_undone(store: Store) -> None:
    """An error undoes only what was done since the savepoint, and is raised unchanged."""
    error, inside = Boom("as it is"), new_job()
    async with store.transaction() as tx:
        before = await store.start(tx=tx)
        with raises(Boom, "the error of the savepoint") as caught:
            async with store.savepoint(tx):
                await store.create(inside, tx=tx)
                await store.settle(completed(before), tx=tx)
                raise error
        check(await store.driver.in_transaction(tx), "the transaction must be open after the savepoint")
        after = await store.start(tx=tx)
    check(caught.error is error, "the error must be raised unchanged")
    equal(await store.statuses(before, inside.id, after), ["pending", None, "pending"], "the jobs")


@driver_case
async def savepoints_nest(store: Store) -> None:
    """Savepoints nest, and follow each other, to any depth."""
    async with store.transaction() as tx, store.savepoint(tx):
        kept = await store.start(tx=tx)
        async with store.undone(tx):
            lost = await store.start(tx=tx)
            async with store.savepoint(tx):
                lost_too = await store.start(tx=tx)
        async with store.savepoint(tx):
            kept_too = await store.start(tx=tx)
    wanted = ["pending", None, None, "pending"]
    equal(await store.statuses(kept, lost, lost_too, kept_too), wanted, "the jobs")


@driver_case
async def transactions_follow_each_other(store: Store) -> None:
    """After a transaction, failed or not, the next one works."""
    jobs: list[str] = []
    for number in range(10):
        try:
            async with store.transaction() as tx:
                jobs.append(await store.start(tx=tx))
                if number % 2:
                    raise Boom
        except Boom:
            continue
    equal(await store.statuses(*jobs), ["pending", None] * 5, "the jobs")


@driver_case
async def a_transaction_begins_with_a_command(store: Store) -> None:
    """The first command of a transaction runs in it, before anything else, and is answered."""
    await store.start()
    claimed, lost = await store.claim_one(), new_job()
    for lock in (False, True):
        with raises(Boom, "the error of the block"):
            async with store.holding(claimed, lock=lock) as (tx, held):
                check(held, "the claim must be valid")
                check(await store.driver.in_transaction(tx), "a transaction must be open")
                await store.create(lost, tx=tx)
                await store.settle(completed(claimed), tx=tx)
                raise Boom
        equal(await store.statuses(claimed.job.id, lost.id), ["running", None], "after the rollback")
    async with store.holding(claimed) as (tx, _):
        kept = await store.start(tx=tx)
        equal((await store.settle(completed(claimed), tx=tx)).applied, [True], "applied")
    equal(await store.statuses(claimed.job.id, kept), ["completed", "pending"], "after the commit")


@driver_case
async def a_command_that_finds_nothing_begins_a_transaction_too(store: Store) -> None:
    """A first command with an empty answer is no error."""
    await store.start()
    claimed = await store.claim_one()
    await store.settle(completed(claimed))
    for lock in (False, True):
        async with store.holding(claimed, lock=lock) as (tx, held):
            check(not held, "the claim must be over")
            job = await store.start(tx=tx)
        equal(await store.statuses(job), ["pending"], "the job")


@driver_case
async def an_operation_stands_alone_without_a_transaction(store: Store) -> None:
    """An operation outside any transaction is committed at once, or changes nothing at all."""
    other = await store.second()
    job = await store.start()
    equal(await other.statuses(job), ["pending"], "seen by another connection")
    unlucky = new_job(dedup=key("k"))
    with raises(JobIdExists, "a stored id"):
        await store.create(unlucky, new_job(id=job))
    equal(await other.statuses(unlucky.id), [None], "the first job of a rejected call")
    (made,) = await store.create(new_job(dedup=key("k", scope="any")))
    equal(made.existing, None, "chain under the key of a rejected call")


@driver_case
async def a_savepoint_heals_a_failed_statement(store: Store) -> None:
    """After a failed statement, a rollback to a savepoint makes the transaction usable again."""
    async with store.transaction() as tx:
        before = await store.start(tx=tx)
        async with store.undone(tx):
            inside = await store.start(tx=tx)
            await store.poison(tx)
        after = await store.start(tx=tx)
        equal(await store.statuses(before, inside, after, tx=tx), ["pending", None, "pending"], "inside")
    equal(await store.statuses(before, inside, after), ["pending", None, "pending"], "the jobs")


@driver_case
async def a_poisoned_transaction_rolls_back(store: Store) -> None:
    """A transaction with a failed statement rolls back cleanly, and the next one works."""
    async with store.rolled_back() as tx:
        job = await store.start(tx=tx)
        await store.poison(tx)
    async with store.transaction() as tx:
        after = await store.start(tx=tx)
    equal(await store.statuses(job, after), [None, "pending"], "the jobs")


@driver_case
async def closing_twice(store: Store) -> None:
    """Closing an adapter a second time does nothing, and does not affect other connections."""
    other = await store.second()
    await other.start()
    for _ in range(2):
        await other.driver.close()
    equal(len(await store.list_jobs()), 1, "jobs, read by the one that is open")
