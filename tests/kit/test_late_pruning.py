"""How long a chain stays that had not ended when its turn came: in virtual time."""

from __future__ import annotations

from typing import Any

import pytest
from tests.kit.conftest import Place

from queuert import EntryJob
from queuert.client.sync_client import SyncClient
from queuert.records.model import Settlement
from queuert.records.retention import KeepPolicy
from queuert.testing import Clock

KEPT, AGE = 5.0, 600.0


class Held(EntryJob[int], name="held"):
    """Its worker is lost, again and again."""


def complete(client: SyncClient[Any], chain_id: str) -> None:
    program = client._engine.state.settle([Settlement(job_id=chain_id, token=None, status="completed", output=b"1")])
    client._run((program, None))


@pytest.mark.parametrize("archived", [False, True])
def test_a_chain_that_faults_have_held_up(place: Place, clock: Clock, archived: bool) -> None:
    """A tenth of its age after it was looked at in vain, it goes: not after a quarter."""
    with place.connect_sync([Held], clock=clock) as client:
        state = client._engine.state
        client._run((state.store_policies([KeepPolicy("held", KEPT, KEPT, KEPT, KEPT, archived)]), None))
        chain = client.submit(Held())
        clock.advance(AGE)
        client.prune()
        complete(client, chain.id)
        clock.advance(AGE / 10 - 1)
        client.prune()
        assert client.get_chain(chain) is not None
        clock.advance(2)
        pruned = client.prune()
        assert (pruned.deleted, dict(pruned.waiting)) == ((0, {"held": 1}) if archived else (1, {}))
