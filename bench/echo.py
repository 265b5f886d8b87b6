"""CPU time of a hop with gRPC alone: a ring of processes that pass messages on unread.

Neighbours are joined by a bare `grpc.aio` stream, as stages are. `python -m bench.echo HOPS BYTES IN_FLIGHT` is one
member of the ring; `measure` starts them all.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
import msgspec
import uvloop
from grpc import aio

from stageline.wire import grpc_options

METHOD = "/bench.Echo/Flow"


class MemberCost(msgspec.Struct):
    """What a member reports at its end."""

    cpu_ns: int
    hops: int


async def _member(hops: int, payload_bytes: int, in_flight: int) -> None:
    """Listen, connect to the next member, pass on what arrives. stdin says where that is and whether to begin."""
    arrived, begun = asyncio.Event(), asyncio.Event()
    begun_ns, count = 0, 0
    call: Any = None

    async def flow(_: AsyncIterator[bytes], context: aio.ServicerContext[bytes, bytes]) -> None:
        nonlocal count
        await begun.wait()
        while isinstance(message := await context.read(), bytes):
            count += 1
            if count >= hops:
                arrived.set()
            if count <= hops:
                await call.write(message)

    server = aio.server(options=grpc_options.SERVER)
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(flow)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Echo", {"Flow": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    loop = asyncio.get_running_loop()
    onward, begins = (await loop.run_in_executor(None, sys.stdin.readline)).split()
    async with aio.insecure_channel(f"127.0.0.1:{onward}", options=grpc_options.CHANNEL) as channel:
        call = channel.stream_stream(METHOD)(wait_for_ready=True)
        await loop.run_in_executor(None, sys.stdin.readline)
        begun_ns = time.process_time_ns()
        for _ in range(in_flight if begins == "1" else 0):
            await call.write(bytes(payload_bytes))
        begun.set()
        await arrived.wait()
        cost = MemberCost(time.process_time_ns() - begun_ns, hops)
        print(msgspec.json.encode(cost).decode(), flush=True)
        await loop.run_in_executor(None, sys.stdin.readline)
        call.cancel()
    await server.stop(0)


def measure(processes: int, hops: int, payload_bytes: int, in_flight: int) -> float:
    """CPU nanoseconds per hop, for receiving and sending; every member passes on `hops` messages."""
    command = [sys.executable, "-m", "bench.echo", str(hops), str(payload_bytes), str(in_flight)]
    quiet = os.environ | {"GRPC_VERBOSITY": "ERROR"}
    pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
    ring = [
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nowhere, env=quiet, text=True)
        for _ in range(processes)
    ]
    try:
        ports = [int(_line(member)) for member in ring]
        for i, member in enumerate(ring):
            _send(member, f"{ports[(i + 1) % processes]} {int(i == 0)}")
        for member in [*ring[1:], ring[0]]:
            _send(member, "go")
        costs = [msgspec.json.decode(_line(member), type=MemberCost) for member in ring]
        for member in ring:  # after all have reported: the next member may still wait for this one's last message
            _send(member, "end")
    finally:
        for member in ring:
            member.kill()
            member.wait()
    return sum(cost.cpu_ns for cost in costs) / sum(cost.hops for cost in costs)


def _line(member: "subprocess.Popen[str]") -> str:
    assert member.stdout is not None
    return member.stdout.readline()


def _send(member: "subprocess.Popen[str]", text: str) -> None:
    assert member.stdin is not None
    member.stdin.write(text + "\n")
    member.stdin.flush()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_member(*map(int, sys.argv[1:])))
