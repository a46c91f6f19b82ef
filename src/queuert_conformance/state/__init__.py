"""The cases of the state port, one module for each operation, and their runner."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from queuert_conformance.report import Report
from queuert_conformance.runner import DEFAULT_TIMEOUT, Factory, run_suite
from queuert_conformance.state import (
    abandoning,
    attempts,
    auditing,
    blockers,
    cancel,
    claim,
    claim_caps,
    claim_next,
    claim_order,
    concurrency,
    concurrency_blockers,
    create,
    dedup,
    dedup_waiting,
    dedup_writes,
    delete,
    delete_cascade,
    examining,
    explaining,
    fencing,
    history,
    horizon,
    isolation,
    limits,
    limits_order,
    limits_rate,
    limits_repair,
    limits_turns,
    listing,
    listing_chains,
    listing_filters,
    losses,
    migrations,
    next_available,
    pauses,
    prune,
    prune_archive,
    prune_keys,
    prune_needed,
    put_back,
    read,
    reap,
    registry,
    release,
    renew,
    repair,
    schedules,
    set_priority,
    settle,
    settle_continue,
    settle_groups,
    stats,
    transactions,
    trigger_retry,
    unblock,
    unblock_chains,
    unblock_many,
    values,
    workers,
)
from queuert_conformance.state.harness import StateHarness
from queuert_conformance.state.store import STATE, open_store

_ = (
    values, create, read, blockers, unblock, unblock_chains, unblock_many, dedup, dedup_waiting, dedup_writes,
    claim, claim_order, claim_caps, claim_next, settle, settle_continue, settle_groups, put_back, fencing, renew, reap,
    release, next_available, trigger_retry, repair, cancel, delete, delete_cascade, listing, listing_chains,
    listing_filters, stats, transactions, isolation, concurrency, concurrency_blockers, migrations, workers, registry,
    explaining, horizon, losses, abandoning, pauses, examining, set_priority, auditing, schedules, prune, prune_needed,
    prune_keys, prune_archive, attempts, history, limits, limits_turns, limits_rate, limits_order,
    limits_repair,
)  # fmt: skip


async def run_state_conformance(
    harness_factory: Factory[StateHarness],
    *,
    only: str | Iterable[str] | None = None,
    timeout: float = DEFAULT_TIMEOUT,
) -> Report:
    """Check a state adapter. Read the report, or call `report.raise_if_failed()`.

    Args:
        harness_factory: Makes a harness for each case: the class, or a function.
        only: Run only some cases, chosen by operation, name or pattern (default: all).
        timeout: How long one case may take, in seconds (default: 100).
    """
    return await run_suite(STATE, harness_factory, open_store, only, timeout)


def run_state_conformance_sync(
    harness_factory: Factory[StateHarness],
    *,
    only: str | Iterable[str] | None = None,
    timeout: float = DEFAULT_TIMEOUT,
) -> Report:
    """Check a state adapter, in a program without an event loop.

    Args:
        harness_factory: Makes a harness for each case: the class, or a function.
        only: Run only some cases, chosen by operation, name or pattern (default: all).
        timeout: How long one case may take, in seconds (default: 100).
    """
    return asyncio.run(run_state_conformance(harness_factory, only=only, timeout=timeout))
