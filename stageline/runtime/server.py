"""The life of a server: bind, announce, serve, drain, stop.

Order at the end: NOT_SERVING, no new work, wait for the work under way, stop. `aio.Server.stop` alone would not
wait for handlers that it aborts.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

import msgspec
import uvloop
from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from prometheus_client import CollectorRegistry

from stageline.errors import StagelineError, UsageError
from stageline.runtime import logs
from stageline.runtime.descriptors import DescriptorWatch, raise_limit
from stageline.runtime.exposition import MetricsEndpoint
from stageline.runtime.open_ports import warn_of_open_port
from stageline.runtime.settings import ServerSettings
from stageline.wire import grpc_options
from stageline.wire.rotation import port_credentials, server_context

log = logging.getLogger(__name__)

_STOP_GRACE_S = 0.5
_ANY_HOST = ("0.0.0.0", "::", "[::]", "")


class Endpoints(msgspec.Struct, frozen=True):
    """Where a server listens: the one line that it prints on stdout when it is ready."""

    grpc: str
    metrics: str
    http: str = ""


Announce = Callable[[bool], Awaitable[None]]


class Service(Protocol):
    """What a server hosts."""

    name: str  # of the gRPC service, for health and reflection

    def add_to(self, server: aio.Server) -> None:
        """Registers the servicer."""
        ...

    async def start(self, endpoints: Endpoints, announce: Announce) -> Endpoints:
        """Begin background work; returns the endpoints with its own. It may `announce` whether it serves."""
        ...

    async def drained(self) -> None:
        """Take no new work; returns when none is under way."""
        ...

    async def stop(self) -> None:
        """End whatever is left and close channels."""
        ...


class Server:
    """One gRPC server with health, reflection and /metrics around one service."""

    def __init__(self, settings: ServerSettings, service: Service, registry: CollectorRegistry) -> None:
        self._settings, self._service, self.registry = settings, service, registry
        self._grpc = aio.server(options=grpc_options.SERVER)
        self._health = health.aio.HealthServicer()
        self._metrics = MetricsEndpoint(
            registry, settings.grpc_host, settings.metrics_port, tls=server_context(settings.metrics_files)
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._grpc)
        service.add_to(self._grpc)
        names = (service.name, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._grpc)

    async def start(self) -> Endpoints:
        """Bind both ports. Raises UsageError when one is in use, BadInput for certificates that can't be used."""
        host, port = self._settings.grpc_host, self._settings.grpc_port
        credentials = port_credentials(self._settings.tls)
        where = f"{host}:{port}"
        try:
            add = self._grpc.add_insecure_port
            bound = self._grpc.add_secure_port(where, credentials) if credentials else add(where)
        except RuntimeError:
            bound = 0
        if not bound:
            raise UsageError(
                f"gRPC port {host}:{port} can't be bound; is it in use? Choose another --grpc-port, 0 for any"
            )
        warn_of_open_port(
            "gRPC", self._settings.reachable(host), tls=credentials is not None, asks=self._settings.unasked
        )
        if self._settings.metrics_port >= 0:
            await self._metrics.start()
        await self._grpc.start()
        reachable = "127.0.0.1" if host in _ANY_HOST else host
        metrics = f"{reachable}:{self._metrics.port}" if self._settings.metrics_port >= 0 else ""
        endpoints = Endpoints(f"{reachable}:{bound}", metrics)
        return await self._service.start(endpoints, self.set_serving)

    async def set_serving(self, serving: bool) -> None:
        """Answer health checks with this from now on."""
        status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in ("", self._service.name):
            await self._health.set(name, status)

    async def stop(self, drain_s: float) -> None:
        """Drain for at most `drain_s`, then stop."""
        await self._health.enter_graceful_shutdown()
        try:
            async with asyncio.timeout(drain_s):
                await self._service.drained()
        except TimeoutError:
            log.warning("work was still under way after the drain time; it is cut off", extra={"drain_s": drain_s})
        await self._service.stop()
        await self._grpc.stop(_STOP_GRACE_S)
        await self._metrics.stop()


def stop_event(exit_with_parent: bool) -> asyncio.Event:
    """Set by SIGTERM, SIGINT, SIGHUP and, if asked for, the end of standard input."""
    loop, event = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, event.set)
    if exit_with_parent:

        def readable() -> None:
            if not os.read(0, 1024):
                loop.remove_reader(0)
                event.set()

        loop.add_reader(0, readable)
    return event


async def serve(server: Server, settings: ServerSettings) -> None:
    """Serve until a signal, or the end of standard input, says to stop."""
    stop = stop_event(settings.exit_with_parent)
    watch = asyncio.create_task(DescriptorWatch(raise_limit()).run())
    endpoints = await server.start()
    print(msgspec.json.encode(endpoints).decode(), flush=True)
    published = {"published": settings.published} if settings.published else {}
    log.info("serving", extra={"grpc": endpoints.grpc, "metrics": endpoints.metrics, **published})
    await stop.wait()
    log.info("stopping")
    await server.stop(settings.drain_s)
    watch.cancel()


def run(program: str, main: Callable[[], Coroutine[Any, Any, None]], settings: ServerSettings) -> int:
    """Run a server's coroutine on uvloop; returns its exit code. A user's mistake is one line, never a traceback."""
    logs.configure(settings.log_format, settings.log_level)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())
    except StagelineError as error:
        complain(program, error)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


def complain(program: str, error: StagelineError) -> None:
    """The error as one line on stderr."""
    with contextlib.suppress(BrokenPipeError):
        print(f"{program}: {error}", file=sys.stderr)
