"""The thread of sync clients: a fork begins anew, and a program that does not close its client ends all the same."""

from __future__ import annotations

import subprocess
import sys
from uuid import uuid4

import pytest
from tests.conformance.postgres_harness import database
from tests.support.nats import nats_url
from tests.support.redis import redis_url

URLS = {"redis": redis_url, "nats": nats_url, "postgres": database}

BEGIN = """
import os, sys, threading, warnings
from queuert.ports.sync_notify import SyncNotify
from queuert.wiring.brokers import broker

warnings.simplefilter("ignore")
notify = SyncNotify(broker({"notify": sys.argv[1], "notify_prefix": sys.argv[2]}))

def listen():
    heard = threading.Event()
    notify.listen("chain_ended", lambda value: heard.set() if value == "from the parent" else None)
    return heard
"""

FORKING = """
notify.publish("job_scheduled", ["a"])
heard = listen()
told, tell = os.pipe()
child = os.fork()
if child == 0:
    notify.publish("job_scheduled", ["a"])
    again = listen()
    os.write(tell, b"!")
    code = 7 if again.wait(45) and not heard.is_set() else 1
    notify.close()
    os._exit(code)
os.read(told, 1)
notify.publish("chain_ended", ["from the parent"])
assert heard.wait(45)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
notify.publish("job_scheduled", ["a"])
notify.close()
sys.exit(code)
"""

LEFT_OPEN = """
heard = listen()
notify.publish("chain_ended", ["from the parent"])
assert heard.wait(45)
sys.exit(7)
"""

OWN_PROVIDER = """
import asyncio
from queuert import NotifyUnavailable

class Provider:
    async def publish(self, channel, messages): ...
    async def subscribe(self, channels, on_message, ready): ...

used, unused, made = (SyncNotify(broker({"notify": given})) for given in (Provider(), Provider(), Provider))
used.publish("job_scheduled", ["a"])
made.publish("job_scheduled", ["a"])
child = os.fork()
if child == 0:
    unused.publish("job_scheduled", ["a"])
    made.publish("job_scheduled", ["a"])
    try:
        used.publish("job_scheduled", ["a"])
    except NotifyUnavailable as error:
        code = 7 if "forked" in str(error) else 2
    for each in (used, unused, made):
        each.close()
    os._exit(code)
for each in (used, unused, made):
    each.close()
notify.close()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def run(program: str, url: str) -> None:
    """It must end by itself, with code 7, and write no complaint."""
    command = [sys.executable, "-c", BEGIN + program, url, f"processes{uuid4().hex[:8]}"]
    ended = subprocess.run(command, timeout=250, stderr=subprocess.PIPE, text=True)
    assert (ended.returncode, ended.stderr) == (7, "")


@pytest.fixture(params=URLS)
def url(request: pytest.FixtureRequest) -> str:
    return URLS[request.param]()


def test_a_forked_child_has_a_thread_and_connections_of_its_own(url: str) -> None:
    run(FORKING, url)


def test_a_program_that_does_not_close_its_client_ends(url: str) -> None:
    run(LEFT_OPEN, url)


def test_a_provider_of_the_users_that_was_used_before_the_fork() -> None:
    run(OWN_PROVIDER, redis_url())
