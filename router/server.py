"""A router put together."""

from functools import partial
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry, ProcessCollector

from router.api.generation import OutputLengths
from router.api.keys import AccessControl
from router.api.openai.http_server import OpenAiServer
from router.api.tokenizer import open_tokenizer
from router.cluster.stages import StageTable
from router.live.models import ServedModels
from router.live.options import LiveOptions
from router.live.service import LiveService
from router.live.supervisor import LiveSupervisor
from router.live.traces import LiveTraces
from router.metrics.collector import RouterCollector
from router.metrics.live import LiveCollector
from router.metrics.vllm import ServingMetrics, Watch
from router.page.site import Page
from router.runs.servicer import RouterServicer
from router.runs.status import RouterStatus
from router.settings import RouterSettings, stage_addresses
from stageline.engine.router import Router
from stageline.engine.served import ServedFleet
from stageline.engine.settings import plan_scheduling, read_scheduling
from stageline.errors import BadInput, UsageError
from stageline.plan.schema import Plan
from stageline.runtime.deadline import deadline_ns
from stageline.runtime.deployment import Deployment, read_deployment
from stageline.runtime.dilation import parse_dilation
from stageline.runtime.open_ports import warn_of_open_port
from stageline.runtime.server import Server, serve
from stageline.runtime.text_format import encode
from stageline.wire.channels import Dialer
from stageline.wire.rotation import server_context


def build(settings: RouterSettings) -> Server:
    """The server, not yet started. It is healthy while all of its stages are. Raises UsageError or BadInput."""
    if not settings.plan or not settings.stages:
        raise UsageError("the router needs --plan and --stages; --help explains both")
    deployment = read_deployment(Path(settings.plan))
    addresses = stage_addresses(settings.stages, deployment)
    table = StageTable(deployment, addresses, Dialer(settings.tls), key=settings.stage_key)
    serving = ServingMetrics(deployment.fleet)
    live = live_service(table, settings, serving) if settings.live else None
    collector = RouterCollector(deployment, table.health, (lambda: live.supervisor.session) if live else lambda: None)
    registry = CollectorRegistry()
    registry.register(collector)
    registry.register(serving)
    ProcessCollector(registry=registry)
    if live:
        live.supervisor.on_session = collector.on_session
        registry.register(LiveCollector(live.supervisor))
    access = AccessControl(settings.api_key, settings.rate_limit)
    status = RouterStatus(table, live.supervisor if live else None, partial(encode, registry))
    servicer = RouterServicer(
        table,
        advertise=settings.advertise,
        window=settings.window,
        payload=settings.payload,
        on_run=collector.on_run,
        watch=serving,
        live=live,
        trust_runs=settings.trust_runs,
        access=access,
        http=openai_server(live, settings, registry, access, status) if live and settings.http_port >= 0 else None,
        status=status,
        deadline_ns=deadline_ns(settings.stage_deadline),
    )
    return Server(settings, servicer, registry)


def live_service(table: StageTable, settings: RouterSettings, watch: Watch) -> LiveService:
    """The live side of the router. Raises UsageError or BadInput for settings that make no sense."""
    fleet = live_fleet(table.deployment, settings.scheduling)
    Router(fleet, settings.seed, watch)  # refuses here what it would refuse in every session
    options = LiveOptions(
        seed=settings.seed,
        dilation=parse_dilation(settings.dilation, [pool.route for pool in fleet.pools]),
        deadline_ns=deadline_ns(settings.stage_deadline),
        queue=settings.queue,
        payload=settings.payload,
        record=Path(settings.record) if settings.record else None,
        retries=settings.session_retries,
    )
    tokenizer = open_tokenizer(Path(settings.tokenizer) if settings.tokenizer else None)
    lengths = OutputLengths(settings.output_lengths, settings.seed, tokenizer)
    models = ServedModels(fleet, settings.served_model_name, tokenizer, settings.image_tokens)
    traces = LiveTraces(table.deployment, settings.otlp, settings.trace_sample) if settings.otlp else None
    return LiveService(LiveSupervisor(fleet, table, options, watch, traces), lengths, tokenizer, models)


def live_fleet(deployment: Deployment, scheduling: str) -> ServedFleet:
    """What live sessions serve: a plan alone with the router's settings, or a fleet with its own.

    Raises BadInput or UsageError.
    """
    fleet = deployment.fleet
    if isinstance(deployment.document, Plan):
        try:
            settings = read_scheduling(scheduling, plan_scheduling(deployment.document))
        except (msgspec.MsgspecError, ValueError) as error:
            raise BadInput("--scheduling", scheduling, str(error), "give a JSON object") from None
        fleet = deployment.with_scheduling(settings)
    elif scheduling != RouterSettings().scheduling:
        hint = "change the settings in the fleet file"
        raise BadInput("--scheduling", scheduling, "the pools of a fleet have their own settings", hint)
    for pool in fleet.pools:
        serving = pool.route.plan.serving
        if pool.scheduling.speculate and not pool.scheduling.acceptance_ppm and serving and serving.speculate:
            reason = "the plan drafts tokens, which needs the probability that a draft is accepted"
            where = f"in the settings of pool {pool.name}" if pool.name else "in --scheduling"
            raise UsageError(f"{reason}: give --acceptance 0.7 (acceptance_ppm {where})")
    return fleet


def openai_server(
    live: LiveService,
    settings: RouterSettings,
    registry: CollectorRegistry,
    access: AccessControl,
    status: RouterStatus,
) -> OpenAiServer:
    """The OpenAI-compatible server, not yet started."""
    host = settings.http_host or settings.grpc_host
    tls = server_context(settings.tls)
    asks = "" if settings.api_key else "a key (--api-key)"
    warn_of_open_port("HTTP", settings.reachable(host), tls=tls is not None, asks=asks)
    state = partial(status.reply, metrics=True)
    page = Page(live, state, dashboards=settings.dashboards, wants_key=bool(access.keys))
    return OpenAiServer(live, registry, host=host, port=settings.http_port, access=access, tls=tls, page=page)


async def main(settings: RouterSettings) -> None:
    """Serve until stopped."""
    await serve(build(settings), settings)
