"""A router that could never open a live session does not start."""

import msgspec
import pytest

from router.cluster.stages import StageTable
from router.metrics.vllm import ServingMetrics
from router.server import live_service
from router.settings import RouterSettings
from stageline.errors import UsageError
from stageline.plan.schema import KvWindow, Plan
from stageline.runtime.deployment import Deployment
from tests.unit.engine.builders import plan

PLAN = plan()
WINDOWS = (KvWindow(most_blocks=2, block_bytes=64),)
WINDOWED = msgspec.structs.replace(
    PLAN, stages=tuple(msgspec.structs.replace(stage, kv_windows=WINDOWS) for stage in PLAN.stages)
)


def service(of: Plan, scheduling: str) -> None:
    served = Deployment(of)
    live_service(StageTable(served, []), RouterSettings(scheduling=scheduling), ServingMetrics(served.fleet))


@pytest.mark.parametrize(
    ("of", "scheduling", "reason"),
    [
        (PLAN, '{"policy": "nowhere:Policy"}', "--queueing nowhere:Policy"),
        (PLAN, '{"balance": "nearest"}', "--balance nearest: there is no such policy"),
        (PLAN, '{"balance": "prefix"}', "--balance prefix needs a prefix cache"),
        (PLAN, '{"batching": "slo"}', "--batching slo needs a TPOT"),
        (PLAN, '{"credits": 0}', "--scheduling"),
    ],
)
def test_scheduling_that_no_session_can_have(of: Plan, scheduling: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        service(of, scheduling)


def test_scheduling_that_one_can_have() -> None:
    service(PLAN, '{"prefix_cache": true}')
    service(WINDOWED, '{"kv": "grow", "prefix_cache": true}')
