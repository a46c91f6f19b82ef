"""`queuert why`: why a job is not running, and what to do."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from queuert.client.client import Client
from queuert.operate.cli.arguments import Parsers
from queuert.operate.cli.database import add_client_command
from queuert.operate.cli.remedies import command_for
from queuert.operate.exits import DONE
from queuert.operate.ids import find_job
from queuert.operate.terminal import Output, clean

TEXT = """\
Explains why the current job of a chain is not running: all reasons, each with what would end it,
and the command for that. The reason that must end first comes first. The beginning of an id is
enough, if no other id begins so. The id of a job means its chain.
"""


def add(parsers: Parsers) -> None:
    parser = add_client_command(parsers, "why", "why a job is not running, and what to do", TEXT, _why)
    parser.add_argument("id", metavar="ID", help="the id of a chain or a job, or the beginning of one")


async def _why(arguments: argparse.Namespace, client: Client[Any]) -> int:
    output = Output(arguments)
    job = await find_job(client, arguments.id)
    why = await client.why(job.chain_id)
    if not output.json:
        reasons = iter(why.reasons)
        for line in str(why).splitlines():
            output.line(clean(line))
            text = line.lstrip()
            if text.startswith("→ "):
                _show_command(output, line.removesuffix(text), command_for(why, next(reasons)))
        return DONE
    facts = {each.name: getattr(why, each.name) for each in dataclasses.fields(why) if each.name != "reasons"}
    described = [
        {
            "kind": type(reason).__name__,
            "text": str(reason),
            "remedy": reason.remedy,
            "command": command_for(why, reason),
            "in_the_way": reason.in_the_way,
            **dataclasses.asdict(reason),
        }
        for reason in why.reasons
    ]
    output.json_line({**facts, "reasons": described})
    return DONE


def _show_command(output: Output, indent: str, command: str | None) -> None:
    if command is not None:
        output.line(f"{indent}$ {clean(command)}")
