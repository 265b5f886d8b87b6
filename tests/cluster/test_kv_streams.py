"""KV of hand-overs that really streams between stages (payload modes capped and full). Random fleets with all payload
modes are in test_agreement.py.
"""

import asyncio
import re
from types import SimpleNamespace

import msgspec
import pytest

from router.cluster.kv_orders import KvOrders
from stage_server.kv import KvStreams
from stage_server.metrics import StageCollector
from stage_server.servicer import StageServicer
from stageline.cluster.client_run import run_on_cluster
from stageline.engine.fleet import Fleet, HandOver, Pool
from stageline.engine.settings import Scheduling
from stageline.engine.types import Request
from stageline.errors import ProtocolError, RunFailed, StagelineError, Unavailable
from stageline.plan.schema import Plan
from stageline.runtime.deployment import Deployment
from stageline.runtime.metric_names import KV_STREAMED
from stageline.testing import DigestObserver, ListWorkload, request, run_fleet, uniform_plan
from stageline.v1.stage_pb2 import SendKvReply
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
    with_layers = {
        part: tuple(
            msgspec.structs.replace(one, layers=tuple(range(s * each, (s + 1) * each)))
            for s, one in enumerate(getattr(plan, part))
        )
        for part in ("stages", "visits")
    }
    return msgspec.structs.replace(plan, **with_layers)


def handing_over(source: Plan, target: Plan, **hand_over: object) -> Fleet:
    """A prefill and a decode pool."""
    caches = Scheduling(prefix_cache=True)
    return Fleet(
        pools=(
            Pool(name="prefill", plan=source, role="prefill", scheduling=caches),
            Pool(name="decode", plan=target, role="decode", scheduling=caches),
        ),
        hand_over=HandOver(**{"bytes_per_s": 10**12, "latency_ns": 5} | hand_over),
    )


def unlike_cuts(**hand_over: object) -> Fleet:
    """Two stages hand over to two replicas of three."""
    return handing_over(cut(2), cut(3, replicas=2), **hand_over)


FLEET = unlike_cuts()
BOOKED = 6 * BLOCK * 16 + 4 * 60  # of the four requests: sixteen blocks, and the states


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
    assert booked == BOOKED
    assert sent == [booked // 2] * 2
    assert landed == [booked // 3] * 3
    assert [counted[0, s].landed_bytes for s in range(2)] == [0, 0]
    assert Payloads.came_bytes == booked if mode == "full" else Payloads.came_bytes <= Payloads.messages * CAPPED_BYTES
    assert Payloads.came_bytes > 0


async def test_metrics_count_both_ends_over_all_runs() -> None:
    """Of one stage of each pool, after a run in each mode."""
    collectors = {0: StageCollector(), 2: StageCollector()}  # by position in the cluster's list of stages
    async with asyncio.timeout(30), cluster(FLEET) as servers:
        for position, collector in collectors.items():
            servers.stages[position]._on_session = collector.on_session
        assert await run(servers, "capped") == await run(servers, "full")
        await run(servers, "size")
    (source, sent), (target, received) = (values_of(collector) for collector in collectors.values())
    assert (source, target) == ("prefill", "decode")
    assert sent == {"sent": 2 * BOOKED // 2, "received": 0}
    assert received["sent"] == 0
    assert 0 < received["received"] < 2 * BOOKED // 3  # the other decode replica has its share


def values_of(collector: StageCollector) -> tuple[str, dict[str, float]]:
    """The pool that a stage names, and its KV bytes by direction."""
    family = next(f for f in collector.collect() if KV_STREAMED.name == f"{f.name}_total")
    return family.samples[0].labels["pool"], {s.labels["direction"]: s.value for s in family.samples}


def test_processes_stream_it_too() -> None:
    """The router of another process compares what its stages have counted."""
    seen = DigestObserver()
    fleet = handing_over(cut(1), cut(2))
    totals = run_on_cluster(fleet, None, ListWorkload(requests()), seed=SEED, observer=seen, payload="full")
    assert seen.finish(totals.stages) == run_fleet(Deployment(fleet).fleet, requests(), seed=SEED).digest


async def failure(servers: Cluster, mode: PayloadMode = "full") -> StagelineError:
    with pytest.raises(StagelineError) as caught:
        await run(servers, mode)
    return caught.value


async def test_bytes_that_go_missing_end_the_run_with_request_stages_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The senders forget the last byte of the long prompt's parts; which of them is noticed first is open."""
    real = kv_in.really_sent
    monkeypatch.setattr("stageline.wire.kv_out.really_sent", lambda n, mode: real(n, mode) - (n > CHUNK_BYTES))
    async with asyncio.timeout(30), cluster(FLEET) as servers:
        error = await failure(servers)
    assert isinstance(error, ProtocolError)
    said = re.fullmatch(
        r"KV of request 2, (\d+) bytes from stage \d .* of replica 0 \(prefill\) to stage \d .* of replica [12] "
        r"\(decode\): (\d+) bytes came instead of (\d+) \(payload mode full\)",
        str(error),
    )
    assert said, error
    assert (int(said[1]), int(said[2]) + 1) == (int(said[3]), int(said[3]))


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
    assert re.search(
        r"of replica 0 \(prefill\) can't send KV: stage \d .* of replica [12] \(decode\) at 127", str(error)
    )


async def test_a_stage_that_hangs_while_kv_is_under_way_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Emulated time is over, and nothing else would notice: the router asks all stages whether they answer."""
    hangs, describe = asyncio.Event(), StageServicer.Describe

    async def send(self: KvStreams, order: object) -> SendKvReply:
        hangs.set()
        await asyncio.wait({self._shell.ended})
        return SendKvReply()

    async def answer(self: StageServicer, *call: object) -> object:
        if hangs.is_set():
            await self.drained()
        return await describe(self, *call)

    monkeypatch.setattr(KvStreams, "send", send)
    monkeypatch.setattr(StageServicer, "Describe", answer)
    monkeypatch.setattr("router.cluster.kv_orders.grpc_options", SimpleNamespace(CALL_S=0.05))
    async with asyncio.timeout(30), cluster(FLEET) as servers:
        error = await failure(servers)
    assert isinstance(error, Unavailable | RunFailed)
    assert re.search(r"stage \d .* can't be reached .*Deadline Exceeded", str(error))
