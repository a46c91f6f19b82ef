"""`queuert doctor`: what is wrong with a database, and repairing it."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from queuert.client.client import Client
from queuert.features.doctor.diagnosis import Finding
from queuert.operate.cli.arguments import Parsers, add_who, who
from queuert.operate.cli.database import add_client_command
from queuert.operate.exits import DONE, NOT_DONE
from queuert.operate.terminal import Output, clean

TEXT = """\
Compares all that must agree in the database, and looks at the server, the clock, the notifications
and the workers. Each finding says what is wrong, how bad it is, and what to do. Workers may go on.

It ends with 0 if nothing is wrong, or nothing any more, and with 1 otherwise.
"""

COLOURS = {"error": "red", "warning": "yellow"}


def add(parsers: Parsers) -> None:
    parser = add_client_command(
        parsers, "doctor", "find out whether the database is all right, and repair it", TEXT, _examine
    )
    parser.add_argument(
        "--full", action="store_true", help="read all jobs, also those that have ended, and the whole SQLite file"
    )
    parser.add_argument("--fix", action="store_true", help="repair what can be proven to be wrong")
    add_who(parser)


async def _examine(arguments: argparse.Namespace, client: Client[Any]) -> int:
    output = Output(arguments)
    diagnosis = await client.doctor(full=arguments.full, fix=arguments.fix, **who(arguments))
    for finding in diagnosis.findings:
        if output.json:
            output.json_line(asdict(finding))
        else:
            _show(output, finding)
    if not output.json:
        output.line(diagnosis.summary)
    return DONE if diagnosis.healthy else NOT_DONE


def _show(output: Output, finding: Finding) -> None:
    word = output.coloured(finding.severity, COLOURS[finding.severity])
    output.line(f"{word} {finding.code}: {clean(finding.what)}")
    output.line(f"  → {clean(finding.remedy if finding.done is None else finding.done)}")
