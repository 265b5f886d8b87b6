"""What both servers offer beside their own service: health, reflection, /metrics, drain."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families

from router.server import build as build_router
from router.settings import RouterSettings
from stage_server.server import build as build_stage
from stage_server.settings import StageSettings
from stageline.engine.settings import Scheduling
from stageline.errors import UsageError
from stageline.testing import Recorder
from stageline.wire.router_client import RouterClient, RunOrder
from tests.cluster.plans import small_plan, some_requests
from tests.cluster.servers import until

COMMON = {"grpc_host": "127.0.0.1", "grpc_port": 0, "metrics_port": 0, "drain_s": 5.0}


@pytest.fixture
def plan_path(tmp_path):
    path = tmp_path / "plan.json"
    path.write_bytes(small_plan(1).canonical())
    return path


@asynccontextmanager
async def pair(path):
    """One stage and its router; their servers and endpoints."""
    stage = build_stage(StageSettings(**COMMON, plan=str(path)))
    at_stage = await stage.start()
    await stage.set_serving(True)
    router = build_router(RouterSettings(**COMMON, plan=str(path), stages=at_stage.grpc))
    at_router = await router.start()
    try:
        yield stage, at_stage, router, at_router
    finally:
        await router.stop(5)
        await stage.stop(5)


async def scraped(endpoint: str) -> dict[tuple[str, str], float]:
    """(name, cause or link) -> value."""
    host, _, port = endpoint.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    assert head.startswith("HTTP/1.1 200")
    return {
        (sample.name, sample.labels.get("cause") or sample.labels.get("link") or ""): sample.value
        for family in text_string_to_metric_families(body)
        for sample in family.samples
    }


async def status_of(address: str) -> int:
    async with aio.insecure_channel(address) as channel:
        reply = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    return int(reply.status)


async def test_the_router_is_healthy_while_its_stages_are(plan_path):
    async with asyncio.timeout(30), pair(plan_path) as (stage, at_stage, _, at_router):
        serving = health_pb2.HealthCheckResponse.SERVING

        async def healthy() -> bool:
            return await status_of(at_router.grpc) == serving

        async def unhealthy() -> bool:
            return await status_of(at_router.grpc) != serving

        assert await status_of(at_stage.grpc) == serving
        await until(healthy)
        await stage.set_serving(False)
        await until(unhealthy)
        await stage.set_serving(True)
        await until(healthy)


async def test_reflection_lists_the_services(plan_path):
    async with asyncio.timeout(30), pair(plan_path) as (_, at_stage, _, at_router):
        for endpoints, name in ((at_stage, "stageline.v1.Stage"), (at_router, "stageline.v1.Router")):
            async with aio.insecure_channel(endpoints.grpc) as channel:
                stub = reflection_pb2_grpc.ServerReflectionStub(channel)
                call = stub.ServerReflectionInfo()
                await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
                reply = await call.read()
                call.cancel()
            names = [service.name for service in reply.list_services_response.service]
            assert name in names
            assert "grpc.health.v1.Health" in names


async def test_metrics_before_and_after_a_run(plan_path):
    plan = small_plan(1)
    async with asyncio.timeout(30), pair(plan_path) as (_, at_stage, _, at_router):
        idle = await scraped(at_stage.metrics)
        assert idle["stageline_stage_idle_seconds_total", "empty"] > 0
        assert idle["stageline_stage_busy_seconds_total", ""] == 0
        async with RouterClient(at_router.grpc) as client:
            order = RunOrder(plan_digest=plan.digest(), scheduling=Scheduling(), seed=0)
            totals, _ = await client.run(order, iter(some_requests()), Recorder())
        stage, router = await scraped(at_stage.metrics), await scraped(at_router.metrics)
    record = totals.stages[0]
    assert stage["stageline_stage_busy_seconds_total", ""] == pytest.approx(record.busy_ns / 1e9)
    assert stage["stageline_stage_idle_seconds_total", "hop"] == pytest.approx(record.idle_ns["hop"] / 1e9)
    assert stage["stageline_stage_microbatches_total", ""] == totals.microbatches
    assert stage["stageline_stage_frame_microbatches_total", ""] == totals.microbatches
    assert stage["stageline_link_payload_bytes_total", "1"] == 64 * 20 * 8
    assert router["stageline_requests_finished_total", ""] == 20
    assert router["stageline_microbatches_total", ""] == totals.microbatches
    assert router["stageline_requests_running", ""] == 0


async def test_another_path_is_not_found(plan_path):
    async with asyncio.timeout(30), pair(plan_path) as (_, at_stage, _, _):
        host, _, port = at_stage.metrics.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 404")
        writer.close()


async def test_ports_in_use_are_named(plan_path):
    async with asyncio.timeout(30), pair(plan_path) as (_, at_stage, _, _):
        port = int(at_stage.grpc.rpartition(":")[2])
        second = build_stage(StageSettings(**COMMON | {"grpc_port": port}))
        with pytest.raises(UsageError, match=f"gRPC port 127.0.0.1:{port} can't be bound"):
            await second.start()
        await second.stop(0)
        third = build_stage(StageSettings(**COMMON | {"metrics_port": int(at_stage.metrics.rpartition(":")[2])}))
        with pytest.raises(UsageError, match="metrics port"):
            await third.start()
        await third.stop(0)


def test_a_router_without_stages_is_refused():
    with pytest.raises(UsageError, match="--plan and --stages"):
        build_router(RouterSettings())
