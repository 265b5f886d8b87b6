"""KV of hand-overs that really streams between stages (payload modes capped and full). Random fleets with all payload
modes are in test_agreement.py.
"""

import asyncio

import msgspec
import pytest

from router.cluster.kv_orders import KvOrders
from stage_server.kv import KvStreams
from stageline.engine.fleet import Fleet, HandOver, Pool
from stageline.engine.settings import Scheduling
from stageline.engine.types import Request
from stageline.errors import ProtocolError, RunFailed, StagelineError
from stageline.plan.schema import Plan
from stageline.runtime.deployment import Deployment
from stageline.testing import DigestObserver, request, run_fleet, uniform_plan
from stageline.wire import kv_in
from stageline.wire.frames import CAPPED_BYTES, CHUNK_BYTES, PayloadMode
from stageline.wire.kv_in import KvDecoder
from tests.cluster.servers import Cluster, cluster

SEED = 3
BLOCK = 100_000  # bytes of a block at a stage: more than the cap, and 12 blocks are more than a chunk


def cut(stages: int, replicas: int = 1) -> Plan:
    """Six layers in equal stages, with states, whose sum over the stages does not depend on the cut."""
    plan = uniform_plan(
        stages, service_ns=1000, token_ns=10, latency_ns=500, bytes_per_token=64, replicas=replicas,
        kv_budget_bytes=600 * BLOCK, kv_block_bytes=6 * BLOCK // stages, state_bytes=60 // stages,
    )  # fmt: skip
    each = 6 // stages
    layered = tuple(
        msgspec.structs.replace(stage, layers=tuple(range(s * each, (s + 1) * each)))
        for s, stage in enumerate(plan.stages)
    )
    return msgspec.structs.replace(plan, stages=layered)


def unlike_cuts(**hand_over: object) -> Fleet:
    """Two stages hand over to two replicas of three."""
    caches = Scheduling(prefix_cache=True)
    return Fleet(
        pools=(
            Pool(name="prefill", plan=cut(2), role="prefill", scheduling=caches),
            Pool(name="decode", plan=cut(3, replicas=2), role="decode", scheduling=caches),
        ),
        hand_over=HandOver(**{"bytes_per_s": 10**12, "latency_ns": 5} | hand_over),
    )


FLEET = unlike_cuts()


def requests() -> list[Request]:
    """Prompts of one block, and one of thirteen."""
    lengths = [16, 5, 200, 9]
    return [request(i, i * 3000, prompt_tokens=n, output_tokens=4) for i, n in enumerate(lengths)]


class Payloads(KvDecoder):
    """Counts the bytes that really came, of all streams."""

    came_bytes = messages = 0

    def chunk(self, chunk: object) -> object:
        """See KvDecoder."""
        Payloads.came_bytes += len(chunk.payload)
        Payloads.messages += 1
        return super().chunk(chunk)


@pytest.fixture(autouse=True)
def payloads(monkeypatch: pytest.MonkeyPatch) -> type[Payloads]:
    Payloads.came_bytes = Payloads.messages = 0
    monkeypatch.setattr("stage_server.kv.KvDecoder", Payloads)
    return Payloads


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[int, int], KvStreams]:
    """What the last session of every stage has counted, by (replica, stage)."""
    found: dict[tuple[int, int], KvStreams] = {}

    def streams(session: str, own: tuple[int, int], *rest: object) -> KvStreams:
        found[own] = KvStreams(session, own, *rest)
        return found[own]

    monkeypatch.setattr("stage_server.session.KvStreams", streams)
    return found


async def run(servers: Cluster, mode: PayloadMode) -> str:
    """The digest of a run."""
    totals, seen, _ = await servers.run(requests(), None, seed=SEED, payload=mode)
    digest = DigestObserver()
    for record in seen.requests:
        digest.request(record)
    return digest.finish(totals.stages)


@pytest.mark.parametrize("mode", ["size", "capped", "full"])
@pytest.mark.parametrize(
    "settings",
    [{}, {"transfer": "missing"}, {"order": "destination-first", "streamed": True}],
    ids=["all", "missing", "streamed"],
)
async def test_what_is_booked_lands_at_the_stages_with_the_same_layers(
    mode: PayloadMode, settings: dict[str, object], counted: dict[tuple[int, int], KvStreams]
) -> None:
    fleet = unlike_cuts(**settings)
    wanted = run_fleet(Deployment(fleet).fleet, requests(), seed=SEED)
    booked = sum(record.hand_over.sent_bytes for record in wanted.requests if record.hand_over)
    async with asyncio.timeout(30), cluster(fleet) as servers:
        assert await run(servers, mode) == wanted.digest
    sent = [counted[0, s].sent_bytes for s in range(2)]
    landed = [sum(counted[r, s].landed_bytes for r in (1, 2)) for s in range(3)]
    if mode == "size":
        assert sent == [0, 0] and landed == [0, 0, 0]
        assert Payloads.messages == 0
        return
    assert booked == 6 * BLOCK * 16 + 4 * 60
    assert sent == [booked // 2] * 2
    assert landed == [booked // 3] * 3
    assert [counted[0, s].landed_bytes for s in range(2)] == [0, 0]
    assert Payloads.came_bytes == booked if mode == "full" else Payloads.came_bytes <= Payloads.messages * CAPPED_BYTES
    assert Payloads.came_bytes > 0


async def test_a_second_run_counts_from_zero() -> None:
    async with asyncio.timeout(30), cluster(FLEET) as servers:
        assert await run(servers, "capped") == await run(servers, "full")


async def failure(servers: Cluster, mode: PayloadMode = "full") -> StagelineError:
    with pytest.raises(StagelineError) as caught:
        await run(servers, mode)
    return caught.value


async def test_bytes_that_go_missing_end_the_run_with_request_stages_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sender forgets a chunk of the long prompt."""
    real = kv_in.really_sent
    monkeypatch.setattr("stageline.wire.kv_out.really_sent", lambda n, mode: real(n, mode) - (n > CHUNK_BYTES))
    async with asyncio.timeout(30), cluster(FLEET) as servers:
        error = await failure(servers)
    assert isinstance(error, ProtocolError)
    assert "KV of request 2, 2600020 bytes from stage 0 (stage-0) of replica 0 (prefill) to stage 0 (stage-0)" in str(
        error
    )
    assert "2600019 bytes came instead of 2600020" in str(error)


async def test_a_receiver_that_counts_less_than_was_sent_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def landed(self: KvStreams, kv_bytes: int) -> None:
        self.landed_bytes += kv_bytes - 1

    monkeypatch.setattr(KvStreams, "_landed", landed)
    async with asyncio.timeout(30), cluster(FLEET) as servers:
        error = await failure(servers)
    assert isinstance(error, ProtocolError)
    assert "KV of hand-overs at stage 0 (stage-0) of replica 1 (decode): 0 bytes were to leave, 0 have left; " in str(
        error
    )


async def test_a_decode_stage_that_cant_be_reached_for_kv_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every link stands; only the way from prefill to decode does not."""
    async with asyncio.timeout(30), cluster(FLEET) as servers:
        ordered = KvOrders._request

        def astray(self: KvOrders, parts: list[object]) -> object:
            request = ordered(self, parts)
            for receiver in request.receiver:
                receiver.address = "127.0.0.1:1"
            return request

        monkeypatch.setattr(KvOrders, "_request", astray)
        error = await failure(servers)
        monkeypatch.setattr(KvOrders, "_request", ordered)
        assert await run(servers, "full")  # the stages are free again
    assert isinstance(error, RunFailed)
    assert "of replica 1 (decode) at 127.0.0.1:1 can't be reached" in str(error)
