"""Forks while it watches a file; then each process waits for a chain that the other one completes: forking URL"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from typing import Any

from tests.behaviour.programs.talking import say
from tests.behaviour.steps import Step

import queuert
from queuert import Chain
from queuert.client.sync_client import SyncClient


def connect() -> SyncClient[Any]:
    return queuert.connect_sync(sys.argv[1], jobs=[Step], poll_interval=3600)


def start(client: SyncClient[Any]) -> Chain[Step]:
    with client.transaction() as tx:
        return client.start(tx, Step())


def complete(client: SyncClient[Any], chain: Chain[Step], result: int) -> None:
    with client.transaction() as tx, client.take_over(tx, chain, Step) as current:
        current.settle(result)


def main() -> None:
    with connect() as client:
        for_child, for_parent = start(client), start(client)
        client.sessions.channel.listen("chain_ended", lambda _: None)  # the thread is there when the fork comes
        ready, told = os.pipe(), os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pid = os.fork()
        if pid == 0:
            with connect() as own:
                os.write(ready[1], b"!")
                say(f"child: {own.wait(for_child, timeout=60)}")
                os.read(told[0], 1)
                complete(own, for_parent, 8)
            os._exit(0)
        os.read(ready[0], 1)
        complete(client, for_child, 7)
        waiting = threading.Timer(0.2, os.write, (told[1], b"!"))
        waiting.start()
        say(f"parent: {client.wait(for_parent, timeout=60)}")
        waiting.join()
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


if __name__ == "__main__":
    main()
