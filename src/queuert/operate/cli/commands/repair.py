"""`queuert retry ID --input JSON`: new attempts for one chain, with a corrected input."""

from __future__ import annotations

import argparse
import json
from typing import Any

from queuert.client.client import Client
from queuert.operate.cli.application import Application, places_in
from queuert.operate.cli.arguments import who
from queuert.operate.exits import DONE, CommandError
from queuert.operate.ids import find_chains
from queuert.operate.repairing import RepairPlan, carry_out_repair, plan_repair
from queuert.operate.terminal import Output, clean, confirm

HOW = """
With --input, one chain gets another input, and may also be cancelled or expired. The current job
keeps its type. --app checks the input with the class of your code. Without it, the command checks
only that it is a JSON object, and that fields with chains the job waited for stay as they are.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--input", metavar="JSON", help="for one ID: the whole input, which replaces the stored one")
    parser.add_argument(
        "--app",
        metavar="PLACE",
        action="append",
        help="check the input with this code: package.module:name of a client, a Worker or Handlers",
    )


async def retry_with_input(arguments: argparse.Namespace, client: Client[Any]) -> int:
    output = Output(arguments)
    places = places_in(arguments)
    jobs = Application(places).registry() if places else None
    chains = await find_chains(client, arguments.chains)
    if len(chains) != 1:
        raise CommandError(f"--input is for one chain, and these are {len(chains)}")
    chain_id = chains[0].id
    plan = await plan_repair(client, chain_id, arguments.input, jobs)
    if arguments.plan or not output.json:
        _show_plan(plan, output)
    if arguments.plan:
        return DONE
    confirm(arguments, "retry 1 chain with this input?")
    changed = await carry_out_repair(client, chain_id, arguments.input, jobs, **who(arguments))
    if output.json:
        output.json_line({"id": chain_id, "type": changed.chain_type, "status": changed.status, "done": "retried"})
    else:
        output.line("retried: 1 chain")
    return DONE


def _show_plan(plan: RepairPlan, output: Output) -> None:
    first, current = plan.chain.first, plan.chain.current
    if output.json:
        about = {"id": first.id, "type": first.type_name, "status": current.status, "plan": "retry"}
        more = {"job_type": current.type_name, "before": plan.before, "input": plan.after}
        output.json_line({**about, **more, "new_fields": plan.new_fields})
        return
    output.line(f"{first.id}  {clean(current.type_name)}  {output.status(current.status)}")
    output.line(f"- {clean(json.dumps(plan.before, ensure_ascii=False))}")
    output.line(f"+ {clean(json.dumps(plan.after, ensure_ascii=False))}")
    if plan.new_fields:
        output.line(f"note: the stored input has no field {', '.join(map(clean, plan.new_fields))}")
