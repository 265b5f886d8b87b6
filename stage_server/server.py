"""A stage server put together."""

from functools import partial
from pathlib import Path

from prometheus_client import CollectorRegistry, ProcessCollector

from stage_server.metrics import StageCollector
from stage_server.servicer import StageServicer
from stage_server.settings import StageSettings
from stageline.runtime.plans import read_plan_file
from stageline.runtime.server import Server, serve
from stageline.runtime.text_format import encode
from stageline.wire.channels import Dialer


def build(settings: StageSettings) -> Server:
    """The server, not yet started. Raises BadInput for a plan that can't be read."""
    plan = read_plan_file(Path(settings.plan)) if settings.plan else None
    collector = StageCollector(settings.stage, settings.replica)
    registry = CollectorRegistry()
    registry.register(collector)
    ProcessCollector(registry=registry)
    servicer = StageServicer(
        plan,
        stage=settings.stage,
        replica=settings.replica,
        on_session=collector.on_session,
        dialer=Dialer(settings.tls),
        key=settings.stage_key,
        metrics=partial(encode, registry),
    )
    return Server(settings, servicer, registry)


async def main(settings: StageSettings) -> None:
    """Serve until stopped."""
    await serve(build(settings), settings)
