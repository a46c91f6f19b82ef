"""The example services answer real requests, on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
import importlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from tests.support.postgres import server
from werkzeug.serving import make_server

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'orders.db'}"
    else:
        with server().fresh() as found:
            yield found.replace("postgresql", "postgresql+psycopg", 1)


def imported(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """As if for the first time: an example reads its settings when it is imported. Other tests keep their modules."""
    for known in [module for module in sys.modules if module.startswith(name.partition(".")[0])]:
        monkeypatch.delitem(sys.modules, known)
    return importlib.import_module(name)


async def test_fastapi(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", url.replace("sqlite:", "sqlite+aiosqlite:"))
    app = imported("fastapi_orders.app", monkeypatch).app
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()  # who comes early waits
        web = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="on", ws="none"))
        serving = asyncio.create_task(web.serve(sockets=[listening]))
        try:
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{listening.getsockname()[1]}", timeout=60) as http:
                placed = (await http.post("/orders", json={"product": "lamp"})).json()
                assert (await http.get(f"/parcels/{placed['chain']}")).json() == f"parcel-{placed['order']}"
                shown = await http.get(f"/orders/{placed['order']}")
                assert shown.json() == {"product": "lamp", "state": "shipped"}
                assert (await http.post("/orders", json={"product": "unicorn"})).status_code == 409
                assert (await http.get("/orders")).json() == 1
        finally:
            web.should_exit = True
            await serving


def test_flask(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", url)
    app = imported("flask_orders.app", monkeypatch).create_app()
    web = make_server("127.0.0.1", 0, app, threaded=True)
    serving = threading.Thread(target=web.serve_forever)
    serving.start()
    environment = {**os.environ, "DATABASE_URL": url}
    worker = subprocess.Popen([sys.executable, "-m", "flask_orders.worker"], cwd=EXAMPLES, env=environment)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{web.server_port}", timeout=60) as http:
            placed = http.post("/orders", json={"product": "lamp"}).json()
            assert http.get(f"/parcels/{placed['chain']}").json() == {"parcel": f"parcel-{placed['order']}"}
            assert http.get(f"/orders/{placed['order']}").json() == {"product": "lamp", "state": "shipped"}
            assert http.post("/orders", json={"product": "unicorn"}).status_code == 409
            assert http.get(f"/orders/{placed['order'] + 1}").status_code == 404
        worker.terminate()
        assert worker.wait(250) == 0
    finally:
        worker.kill()
        worker.wait()
        web.shutdown()
        serving.join()
        web.server_close()
        app.extensions["closing"].close()
