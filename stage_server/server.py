"""A stage server put together."""

from functools import partial
from pathlib import Path

from prometheus_client import CollectorRegistry, ProcessCollector

from stage_server.metrics import StageCollector
from stage_server.servicer import StageServicer
from stage_server.settings import StageSettings
from stageline.runtime.deployment import Deployment, read_deployment
from stageline.runtime.server import Server, serve
from stageline.runtime.text_format import encode
from stageline.wire.channels import Dialer


def build(settings: StageSettings) -> Server:
    """The server, not yet started. Raises BadInput for a plan or fleet that can't be read."""
    deployment = read_deployment(Path(settings.plan)) if settings.plan else None
    collector = StageCollector(settings.stage, settings.replica, _pool(deployment, settings.replica))
    registry = CollectorRegistry()
    registry.register(collector)
    ProcessCollector(registry=registry)
    servicer = StageServicer(
        deployment,
        stage=settings.stage,
        replica=settings.replica,
        on_session=collector.on_session,
        dialer=Dialer(settings.tls),
        key=settings.stage_key,
        metrics=partial(encode, registry),
    )
    return Server(settings, servicer, registry)


def _pool(deployment: Deployment | None, replica: int) -> str:
    """The name of the pool, if that is known before a router says it."""
    return deployment.pool(replica) if deployment and 0 <= replica < deployment.replicas else ""


async def main(settings: StageSettings) -> None:
    """Serve until stopped."""
    await serve(build(settings), settings)
