"""`stageline up`: a cluster of local processes until Ctrl-C."""

import asyncio
import signal
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import uvloop
from cyclopts import Parameter

from stageline.cli.docker_flags import DockerFlags
from stageline.cli.flags import SchedulingFlags
from stageline.cluster.local import LocalCluster, LocalOptions
from stageline.engine.route import Route
from stageline.errors import BadInput, RunFailed
from stageline.plan.schema import Plan
from stageline.report.slo import parse_slo
from stageline.runtime import logs
from stageline.runtime.dilation import parse_dilation
from stageline.runtime.logs import say
from stageline.runtime.plans import load_plan

LAST_PORT = 65535


def up(
    plan: Annotated[Path, Parameter(help="plan file, made by stageline plan -o")],
    *,
    docker: DockerFlags = DockerFlags(),  # noqa: B008  (frozen)
    scheduling: SchedulingFlags = SchedulingFlags(),  # noqa: B008  (frozen)
    http_port: Annotated[int, Parameter(help="OpenAI-compatible HTTP port; 0: any, -1: none")] = 8000,
    dilation: Annotated[str, Parameter(help="wall time per emulated time: auto, 1 (real time), 50, ...")] = "auto",
    record: Annotated[Path | None, Parameter(help="record live sessions for run --workload")] = None,
    seed: Annotated[int, Parameter(help="of live sessions")] = 0,
    slo: Annotated[str | None, Parameter(help="tpot=50ms: what --batching slo keeps")] = None,
    output_lengths: Annotated[
        str, Parameter(help="tokens of outputs: max, echo, constant:128, lognormal(...)")
    ] = "max",
    served_model_name: Annotated[str, Parameter(help="names of the model, comma-separated")] = "",
    otlp: Annotated[str, Parameter(help="send request spans to a collector, like http://localhost:4318")] = "",
    trace_sample: Annotated[float, Parameter(help="share traced of requests without a traceparent")] = 0.01,
    fail_fast: Annotated[bool, Parameter(negative="", help="a server that ends stops all")] = False,
    grpc_port: Annotated[int, Parameter(help="the router's gRPC port; 0: any")] = 50051,
    metrics_port: Annotated[int, Parameter(help="the router's /metrics port; 0: any")] = 9090,
    payload: Annotated[Literal["size", "capped", "full"], Parameter(help="activation bytes really sent")] = "capped",
    window: Annotated[int, Parameter(help="frames in flight per replica; 0: two per core")] = 0,
    log_level: Annotated[Literal["debug", "info", "warning", "error"], Parameter(help="of all servers")] = "warning",
    log_format: Annotated[Literal["text", "json"], Parameter(help="of all servers")] = "text",
) -> None:
    """Start the router and one server per stage as local processes or containers; Ctrl-C stops all of them."""
    for flag, port, least in (("http", http_port, -1), ("grpc", grpc_port, 0), ("metrics", metrics_port, -1)):
        if not least <= port <= LAST_PORT:
            raise BadInput(f"--{flag}-port", port, "no such port", f"give {least} to {LAST_PORT}")
    logs.configure(log_format, log_level)
    loaded = load_plan(plan)
    factor = parse_dilation(dilation, Route(loaded))
    objective = None if slo is None else parse_slo(slo)
    router_flags: dict[str, object] = {
        "http-port": http_port,
        "dilation": factor,
        "record": record.resolve() if record else "",
        "seed": seed,
        "output-lengths": output_lengths,
        "served-model-name": served_model_name,
        "otlp": otlp,
        "trace-sample": trace_sample,
        "scheduling": msgspec.json.encode(scheduling.settings(loaded, objective)).decode(),
    }
    options = LocalOptions(
        grpc_port=grpc_port,
        metrics_port=metrics_port,
        payload=payload,
        window=window,
        log_level=log_level,
        log_format=log_format,
        restart=not fail_fast,
        router_flags=tuple(f"--{name}={value}" for name, value in router_flags.items()),
    )
    if docker.docker:
        from stageline.cli.docker import up_in_docker  # noqa: PLC0415  (the SDK is slow to load)

        up_in_docker(loaded, options, router_flags | {"dilation": dilation}, docker)
        return
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(loaded, plan, options, factor))


async def _serve(plan: Plan, path: Path, options: LocalOptions, dilation: float) -> None:
    """Until a signal, or with --fail-fast until a server ends."""
    loop, told = asyncio.get_running_loop(), asyncio.Event()
    task = asyncio.current_task()
    assert task is not None
    listening = False

    def stop() -> None:
        told.set()
        if not listening:
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        async with LocalCluster(plan, path, options, say) as servers:
            await servers.healthy()
            listening = True
            _print(plan, servers, dilation)
            servers.broken.add_done_callback(lambda _: told.set())
            await told.wait()
            if servers.broken.done():
                raise RunFailed(f"{servers.broken.result()}; all servers are stopped (--fail-fast)")
    except asyncio.CancelledError:
        if not told.is_set():
            raise


def _print(plan: Plan, servers: LocalCluster, dilation: float) -> None:
    """Where everything listens, one line each, once all of it does."""
    router = servers.router_endpoints
    lines = [f"router      grpc {router.grpc}  metrics http://{router.metrics}/metrics"]
    if router.http:
        lines.append(f"door        http://{router.http}/v1  at dilation {dilation:g}")
    for child in servers.stages:
        if child.endpoints:
            where = f"grpc {child.endpoints.grpc}  metrics http://{child.endpoints.metrics}/metrics"
            lines.append(f"{child.name}  {where}")
    lines.append(f"{plan.model}: {len(servers.stages)} stage servers are healthy")
    lines.append(f"next: stageline run PLAN --cluster {router.grpc} --workload ...")
    print("\n".join(lines), flush=True)
