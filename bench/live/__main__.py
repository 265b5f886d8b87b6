"""The live cluster as clients see it, client included.

    python -m bench.live throughput [--seconds 10] [--rounds 3]
    python -m bench.live accuracy [PLAN]
    python -m bench.live session [PLAN] [--minutes 10] [--rate 3] [--dilation 1]

JSON lines. On a host that does other work the figures say nothing: see `cores`.
"""

import argparse
import asyncio
from collections.abc import Coroutine
from pathlib import Path

import uvloop

from bench.live.accuracy import accuracy
from bench.live.cluster import chain
from bench.live.session import Flags, session
from bench.live.throughput import CREDITS, SERVICE_NS, throughput
from stageline.runtime.plans import read_plan_file


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m bench.live", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    flow = commands.add_parser("throughput", help="streamed chunks per second at concurrency 64, 8 stages")
    flow.add_argument("--seconds", type=float, default=10.0, help="length of a round")
    flow.add_argument("--rounds", type=int, default=3)
    flow.add_argument("--credits", type=int, default=CREDITS, help="microbatches in flight")
    flow.add_argument("--service-ns", type=int, default=SERVICE_NS, help="of a stage per microbatch")
    exact = commands.add_parser("accuracy", help="delivered times against emulated ones at dilation 1")
    exact.add_argument("plan", type=Path, nargs="?", help="default: eight stages of 3 ms")
    long = commands.add_parser("session", help="a recorded session of many kinds of clients against its replays")
    long.add_argument("plan", type=Path, nargs="?", help="default: eight stages of 3 ms")
    long.add_argument("--minutes", type=float, default=10.0)
    long.add_argument("--rate", type=float, default=3.0, help="clients per second of wall time")
    long.add_argument("--dilation", default="1", help="1, auto, ...")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_work(parser.parse_args()))


def _work(flags: argparse.Namespace) -> Coroutine[None, None, None]:
    if flags.command != "throughput":
        plan = read_plan_file(flags.plan) if flags.plan else chain(3_000_000, 8)
        if flags.command == "accuracy":
            return accuracy(plan)
        return session(plan, Flags(flags.minutes, flags.rate, flags.dilation))
    return throughput(flags.seconds, flags.rounds, flags.credits, flags.service_ns)


if __name__ == "__main__":
    main()
