"""A router put together."""

from pathlib import Path

from prometheus_client import CollectorRegistry

from router.metrics import RouterCollector
from router.servicer import RouterServicer
from router.settings import RouterSettings, stage_addresses
from stageline.errors import UsageError
from stageline.runtime.plans import load_plan
from stageline.runtime.server import Server, serve


def build(settings: RouterSettings) -> Server:
    """The server, not yet started. It is healthy while all of its stages are. Raises UsageError or BadInput."""
    if not settings.plan or not settings.stages:
        raise UsageError("the router needs --plan and --stages; --help explains both")
    plan = load_plan(Path(settings.plan))
    collector = RouterCollector()
    registry = CollectorRegistry()
    registry.register(collector)
    servicer = RouterServicer(
        plan,
        stage_addresses(settings.stages, plan),
        advertise=settings.advertise,
        window=settings.window,
        payload=settings.payload,
        on_run=collector.on_run,
    )
    server = Server(settings, servicer, registry)
    servicer.on_health = server.set_serving
    return server


async def main(settings: RouterSettings) -> None:
    """Serves until told to stop."""
    server = build(settings)

    async def ready() -> None:
        """Health follows the stages."""

    await serve(server, settings, ready)
