"""Prometheus, set up as the documentation says, and scraped."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import start_http_server
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import PATIENCE
from tests.behaviour.working import begin
from tests.support.jobs import JOBS, Greet

from queuert import Attempt, Handlers, Worker
from queuert.otel import OpenTelemetry, StatsGauges

handlers: Handlers[Any] = Handlers()


@handlers.handles(Greet)
async def greet(attempt: Attempt[Greet, Any]) -> str:
    return "Hello"


async def test_scraping(setting: Setting) -> None:
    meters = MeterProvider([PrometheusMetricReader()])
    server, thread = start_http_server(0, addr="127.0.0.1")
    observer = OpenTelemetry(meter_provider=meters)
    try:
        async with setting.connect(JOBS, observers=[observer]) as client:
            chain = await begin(client, Greet())
            async with Worker(client, handlers, concurrency=2, poll_interval=setting.poll_interval):
                await client.wait(chain, timeout=PATIENCE)
                await begin(client, Greet(), after=3600)
                async with StatsGauges(client, meter_provider=meters):
                    text = scrape(server.server_port)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        meters.shutdown()

    assert value(text, "queuert_chain_created", 'queuert_chain_type="greet"') == 2
    assert value(text, "queuert_chain_completed", 'queuert_chain_type="greet"') == 1
    assert value(text, "queuert_attempt_duration_seconds_count", 'queuert_job_type="greet"') == 1
    assert value(text, "queuert_slots_idle", 'queuert_job_type="greet"') == 2
    assert value(text, "queuert_jobs", 'queuert_job_type="greet"', 'queuert_job_status="pending"') == 1


USE = """
import re
import urllib.request

ports = []


def start_http_server(_):
    import prometheus_client

    server, _ = prometheus_client.start_http_server(0, addr="127.0.0.1")
    ports.append(server.server_port)


class Used(Worker):
    async def run(self):
        await self._client.submit(Greet())
        await self._client.submit(Greet(), after=3600)
        await self.drain()
        text = ""
        while "queuert_jobs{" not in text:  # it is read now and then
            await asyncio.sleep(0.01)
            with urllib.request.urlopen(f"http://127.0.0.1:{ports[0]}/metrics") as answer:
                text = answer.read().decode()
        print(text)


Worker = Used
"""


def test_the_documented_set_up(tmp_path: Path) -> None:
    """And what its alarms use is there."""
    page = Path(__file__).resolve().parents[2] / "docs" / "observability.md"
    (block,) = [
        each for each in re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL) if "9464" in each
    ]
    script = tmp_path / "scraped.py"
    text = block.replace("StatsGauges(client)", "StatsGauges(client, interval=0.05)")
    script.write_text(text.replace("asyncio.run(main())", f"{USE}\nasyncio.run(main())"), "utf-8")
    finished = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=100, check=False)
    assert finished.returncode == 0, finished.stderr
    text = finished.stdout
    assert value(text, "queuert_chain_created", 'queuert_chain_type="greet"') == 2
    alarms = page.read_text("utf-8").partition("Prometheus changes the names")[2].partition("### Spans")[0]
    named = {name.partition("{")[0] for name in re.findall(r"`(queuert_\w+(?:\{[^`]*\})?)`", alarms)}
    assert {"queuert_jobs", "queuert_jobs_oldest_ready_age_seconds"} <= named
    assert {name for name in named if f"# TYPE {name} " not in text} <= {
        "queuert_state_error_total",
        "queuert_attempt_duration_seconds_bucket",
    }, "one that is only there after an error, and a part of a histogram"
    helps = re.findall(r"^# HELP (queuert_\w+) ?(.*)$", text, re.MULTILINE)
    assert [name for name, text in helps if not text] == []


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as answer:
        text: str = answer.read().decode()
    return text


def value(text: str, name: str, *labels: str) -> float:
    """The value of the one line with this name (counters have a suffix) and these labels."""
    lines = [line for line in text.splitlines() if line.startswith((f"{name}{{", f"{name}_total{{"))]
    (line,) = [line for line in lines if all(label in line for label in labels)]
    return float(line.rpartition(" ")[2])
