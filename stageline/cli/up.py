"""`stageline up`: a cluster of local processes until Ctrl-C."""

import asyncio
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import msgspec
import uvloop
from cyclopts import Parameter

from stageline.api.fleet_running import changed_fleet, check_no_code, check_no_engine
from stageline.api.fleets import read_plan_or_fleet
from stageline.api.running import check_seed
from stageline.cli.docker_flags import DockerFlags
from stageline.cli.flags import SchedulingFlags
from stageline.cli.groups import SCHEDULING
from stageline.cli.live_flags import LiveFlags
from stageline.cli.next_steps import next_steps
from stageline.cli.pool_flags import PoolFlags
from stageline.cli.security_flags import SecurityFlags
from stageline.cli.server_flags import ServerFlags
from stageline.cli.signals import ignore_endings, until_signalled
from stageline.cluster import sockets
from stageline.cluster.control import ControlServer, controlled
from stageline.cluster.local import LocalCluster, LocalOptions, written
from stageline.engine.fleet import Fleet
from stageline.errors import BadInput, RunFailed, UsageError
from stageline.report.slo import Slo, parse_slo
from stageline.runtime import logs
from stageline.runtime.deployment import Deployment, Document
from stageline.runtime.dilation import parse_dilation
from stageline.runtime.logs import say
from stageline.wire.channels import SECURE
from stageline.wire.tls import TlsFiles

LAST_PORT = 65535


def up_command(
    plan: Annotated[Path, Parameter(help="Plan file, made by stageline plan -o, or fleet file.")],
    *,
    docker: DockerFlags = DockerFlags(),  # noqa: B008  (frozen)
    scheduling: SchedulingFlags = SchedulingFlags(),  # noqa: B008  (frozen)
    security: SecurityFlags = SecurityFlags(),  # noqa: B008  (frozen)
    live: LiveFlags = LiveFlags(),  # noqa: B008  (frozen)
    slo: Annotated[
        str | None, Parameter(group=SCHEDULING, help="Objective that --batching slo keeps, like tpot=50ms.")
    ] = None,
    servers: ServerFlags = ServerFlags(),  # noqa: B008  (frozen)
) -> None:
    """Start the router and one server per stage as local processes or containers; Ctrl-C stops all of them."""
    ports = (("http", live.http_port, -1), ("grpc", servers.grpc_port, 0), ("metrics", servers.metrics_port, -1))
    for flag, port, least in ports:
        if not least <= port <= LAST_PORT:
            raise BadInput(f"--{flag}-port", port, f"not between {least} and {LAST_PORT}", "give another port")
    docker.check()
    check_seed(live.seed)
    logs.configure(servers.log_format, servers.log_level)
    objective = None if slo is None else parse_slo(slo)
    served, settings = _settled(read_plan_or_fleet(plan, PoolFlags()), scheduling, objective)
    factor = parse_dilation(live.dilation, [pool.route for pool in Deployment(served).fleet.pools])
    router_flags = live.settings() | {"dilation": factor} | settings
    options = LocalOptions(
        grpc_port=servers.grpc_port,
        metrics_port=servers.metrics_port,
        payload=servers.payload,
        window=servers.window,
        log_level=servers.log_level,
        log_format=servers.log_format,
        restart=not servers.fail_fast,
        keep_logs=True,
        tls=_checked(security.files()),
        metrics_tls=_needs_certificate(security, metrics_tls=servers.metrics_tls),
        api_key=security.api_key,
        router_flags=tuple(f"--{name}={value}" for name, value in router_flags.items()),
    )
    if docker.docker:
        from stageline.cli.docker import up_in_docker  # noqa: PLC0415  (the SDK is slow to load)

        up_in_docker(Deployment(served), options, router_flags | {"dilation": live.dilation}, docker)
        return
    with until_signalled(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(served, options, factor, docker.name))


def _settled(document: Document, scheduling: SchedulingFlags, slo: Slo | None) -> tuple[Document, dict[str, str]]:
    """What is served, with the flags of its scheduling: those of a plan go to the router, a fleet has its own."""
    if not isinstance(document, Fleet):
        return document, {"scheduling": msgspec.json.encode(scheduling.settings(document, slo)).decode()}
    check_no_engine(scheduling.engine)
    fleet = changed_fleet(document, scheduling.given(), slo=slo)
    check_no_code(fleet)
    return fleet, {}


def _checked(files: TlsFiles) -> TlsFiles:
    """Files with which servers can authenticate each other. Raises UsageError or BadInput."""
    if (files.cert or files.key or files.ca) and not files.mutual:
        raise UsageError("up needs --tls-cert, --tls-key and --tls-ca together: its servers authenticate each other")
    files.pem()
    return files


def _needs_certificate(security: SecurityFlags, *, metrics_tls: bool) -> bool:
    """Whether /metrics is served by HTTPS. Raises UsageError if there is nothing to serve it with."""
    if metrics_tls and security.tls_cert is None:
        raise UsageError("--metrics-tls without --tls-cert: HTTPS needs a certificate")
    return metrics_tls


async def _serve(document: Document, options: LocalOptions, dilation: float, name: str) -> None:
    """Serve until a signal, `stageline down`, or with --fail-fast until a server ends."""
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    task = asyncio.current_task()
    assert task is not None
    listening = False

    def stop() -> None:
        if not (stopping.is_set() or listening):
            task.cancel()
        stopping.set()

    hangup = signal.getsignal(signal.SIGHUP) != signal.SIG_IGN  # as under nohup
    for number in (signal.SIGINT, signal.SIGTERM, *((signal.SIGHUP,) if hangup else ())):
        loop.add_signal_handler(number, stop)
    try:
        async with AsyncExitStack() as stack:
            claimed = stack.enter_context(sockets.claimed(name))
            folder = stack.enter_context(TemporaryDirectory(prefix="stageline-"))
            servers = LocalCluster(document, written(document, Path(folder)), options, say)
            control = ControlServer(servers, claimed.name, say, stop)
            await stack.enter_async_context(controlled(claimed.listener, control))
            await stack.enter_async_context(servers)
            await servers.healthy()
            listening = True
            _print(document, servers, dilation, options, claimed.name)
            servers.broken.add_done_callback(lambda _: stopping.set())
            await stopping.wait()
            if servers.broken.done():
                raise RunFailed(f"{servers.broken.result()}; all servers are stopped (--fail-fast)")
    except asyncio.CancelledError:
        if not stopping.is_set():
            raise
    finally:
        numbers = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
        signal.pthread_sigmask(signal.SIG_BLOCK, numbers)  # the loop restores defaults for a moment
        for number in numbers:
            loop.remove_signal_handler(number)
        ignore_endings()  # all is stopped, and this process ends
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)


def _print(document: Document, servers: LocalCluster, dilation: float, options: LocalOptions, name: str) -> None:
    """Print where every server listens, one line each."""
    router = servers.router_endpoints
    http, grpc = ("https://", SECURE) if options.tls.cert else ("http://", "")
    metrics = "https" if options.metrics_tls else "http"
    lines = [f"router      grpc {grpc}{router.grpc}  metrics {metrics}://{router.metrics}/metrics"]
    if router.http:
        lines.append(f"api         {http}{router.http}/v1  at dilation {dilation:g}")
    for child in servers.stages:
        if child.endpoints:
            where = f"grpc {grpc}{child.endpoints.grpc}  metrics {metrics}://{child.endpoints.metrics}/metrics"
            lines.append(f"{child.name}  {where}")
    lines.append(f"{', '.join(Deployment(document).models)}: {len(servers.stages)} stage servers are healthy ({name})")
    lines += next_steps(f"{grpc}{router.grpc}", f"{http}{router.http}" if router.http else "", options)
    print("\n".join(lines), flush=True)
