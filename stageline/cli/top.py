"""`stageline top`: watch a running cluster in a terminal, also over ssh."""

import asyncio
import signal
import sys
import time
from contextlib import suppress
from typing import Annotated

from cyclopts import Parameter
from rich.live import Live

from stageline.cli.address import router_address
from stageline.cli.numbers import DECIMAL
from stageline.cli.output import console
from stageline.cli.security_flags import SecurityFlags
from stageline.cli.top_view import render
from stageline.errors import BadInput, Unavailable
from stageline.runtime.cluster_view import ClusterSamples, cluster_samples, view_between
from stageline.runtime.deployment import parse_deployment
from stageline.wire.channels import Dialer
from stageline.wire.router_client import RouterClient

MAX_INTERVAL_S = 3600.0
MIN_INTERVAL_S = 0.1
_ANSWER_S = 5.0  # a router that takes longer counts as gone


def top(
    address: Annotated[str, Parameter(help="gRPC address of the router, HOST:PORT, or grpcs://HOST:PORT for TLS.")],
    *,
    security: SecurityFlags = SecurityFlags(),  # noqa: B008  (frozen)
    interval: Annotated[float, DECIMAL, Parameter(help="Seconds between updates.")] = 1.0,
    once: Annotated[bool, Parameter(negative="", help="Print one screen and exit.")] = False,
) -> None:
    """Watch a running cluster: occupancy, bubbles and KV of every stage, queue, rates, latencies; Ctrl-C exits."""
    if not MIN_INTERVAL_S <= interval <= MAX_INTERVAL_S:  # not a number is neither
        raise BadInput(
            "--interval",
            interval,
            "not a possible interval",
            f"give {MIN_INTERVAL_S} to {MAX_INTERVAL_S:g} s",
        )
    dialer = Dialer(security.files(), api_key=security.api_key)
    router_address("the router's address", address)
    asyncio.run(_until_interrupted(address, dialer, interval, once or not sys.stdout.isatty()))


async def _until_interrupted(address: str, dialer: Dialer, interval_s: float, once: bool) -> None:
    """Ctrl-C and SIGTERM end it normally: the terminal is restored and the exit code is 0."""
    loop = asyncio.get_running_loop()
    watching = asyncio.ensure_future(_watch(address, dialer, interval_s, once))
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, watching.cancel)
    with suppress(asyncio.CancelledError):
        await watching


async def _watch(address: str, dialer: Dialer, interval_s: float, once: bool) -> None:
    out = console()
    async with RouterClient(address, dialer) as client:
        before = await _samples(client)
        deployment = parse_deployment(before.status.plan)
        if once:
            await asyncio.sleep(interval_s)
            out.print(render(view_between(address, deployment, await _samples(client), before), out.width))
            return
        with Live(render(view_between(address, deployment, before, None), out.width), console=out, screen=True) as live:
            while True:
                await asyncio.sleep(interval_s)
                try:
                    now = await _samples(client)
                except Unavailable as error:
                    live.update(f"{error}\ntrying again every {interval_s:g} s; Ctrl-C ends")
                    continue
                live.update(render(view_between(address, deployment, now, before), out.width), refresh=True)
                before = now


async def _samples(client: RouterClient) -> ClusterSamples:
    return cluster_samples(await client.status(_ANSWER_S, metrics=True), time.monotonic())
