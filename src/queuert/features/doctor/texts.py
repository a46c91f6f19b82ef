"""Damages in words: how bad they are, what they lead to, and what helps."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from queuert.features.doctor.diagnosis import Finding, Severity
from queuert.records.examination import Damage, DamageKind, RepairOutcome

_FIX = "run the doctor with fix=True (queuert doctor --fix): it "


class _Text(NamedTuple):
    severity: Severity
    subject: str
    """What the id of the damage is."""
    harm: str
    repair: tuple[str, str] | None
    """What a repair does, and did; None: it cannot be repaired."""
    remedy: str = ""
    """What to do if it cannot be repaired."""


_TEXTS: dict[DamageKind, _Text] = {
    "stray": _Text(
        "error", "job", "A worker may run it when it must not", ("removes it from there", "removed it from there")
    ),
    "misfiled": _Text(
        "error",
        "job",
        "It cannot be changed, and may run at the wrong time",
        ("corrects these values", "corrected these values"),
    ),
    "not_queued": _Text("error", "job", "No worker finds it", ("puts it into the queue", "put it into the queue")),
    "unleased": _Text(
        "error",
        "job",
        "It is not taken back if its worker dies",
        ("gives the claim an end, in a minute", "gave the claim an end, in a minute"),
    ),
    "miscounted": _Text(
        "error",
        "job",
        "It waits for ever, or runs too early",
        ("counts its blockers again", "counted its blockers again"),
    ),
    "miscounted_lane": _Text(
        "error",
        "limit",
        "Its jobs wait for ever, or too many run",
        ("counts its running jobs again", "counted its running jobs again"),
    ),
    "forgotten": _Text(
        "error", "job", "Those that wait may never be freed", ("counts them again", "counted them again")
    ),
    "unread": _Text(
        "error",
        "job",
        "Its handler would run without the outputs",
        ("counts its blockers again", "counted its blockers again"),
    ),
    "mislabelled": _Text(
        "warning", "job", "Listings and statistics are wrong", ("corrects the index", "corrected the index")
    ),
    "stray_edge": _Text(
        "warning",
        "job",
        "It is not stored itself, so nothing waits",
        ("deletes what is left of it", "deleted what is left of it"),
    ),
    "stray_key": _Text(
        "warning",
        "chain",
        "It is not stored, but has a deduplication key",
        ("deletes the key, so that it can be used", "deleted the key, so that it can be used"),
    ),
    "wrong_key": _Text(
        "error",
        "chain",
        "It is found by a deduplication key that is not its own, so a start may return the wrong chain",
        None,
        "only you can know which is right: correct the row by hand, or delete the chain",
    ),
    "blocker_missing": _Text(
        "error",
        "job",
        "It can never run",
        None,
        "cancel its chain, and start it again if it is still needed",
    ),
    "broken_chain": _Text(
        "error",
        "job",
        "Its chain does not end as it should",
        None,
        "read the chain (client.list_chain_jobs), then delete it, and start it again if it is still needed",
    ),
}


def finding_of(damage: Damage) -> Finding:
    text = _TEXTS[damage.kind]
    return Finding(
        code=damage.kind.replace("_", "-"),
        severity=text.severity,
        what=f"{text.subject} {damage.id}: {damage.detail}. {text.harm}.",
        remedy=text.remedy if text.repair is None else _FIX + text.repair[0],
        subject=damage.id,
        fixable=text.repair is not None,
    )


def after_repair(finding: Finding, damage: Damage, result: RepairOutcome) -> Finding:
    """The finding, with what was done."""
    text = _TEXTS[damage.kind]
    if result == "repaired" and text.repair is not None:
        return replace(finding, done=f"repaired: {text.repair[1]}", repaired=True)
    if result == "gone":
        return replace(finding, done="nothing to repair any more: it has changed since", repaired=True)
    return replace(finding, done="not repaired: another transaction uses it; run the doctor again", repaired=False)
