"""Figures of hand-overs, moment by moment, worked by hand.

A prompt takes a block of 10 bytes and a state of 3. A port moves a byte in 1 ns, and KV can be used 5 ns after it was
sent. Both prompts are back at 100, and the decode replica has room for one: the first has left the port at 113, has
landed at 118 and ends at 318; then the second goes, until 331, and has landed at 336.
"""

from types import SimpleNamespace

import msgspec
import pytest
from prometheus_client.core import Metric

from router.metrics.collector import RouterCollector
from router.metrics.hand_overs import kv_families, port_counts, port_families
from router.metrics.vllm import ServingMetrics
from stageline.engine.conductor import Conductor
from stageline.engine.fleet import Fleet, HandOver, Pool
from stageline.engine.inprocess import drive, make_pipelines
from stageline.engine.router import Router
from stageline.engine.served import serve
from stageline.engine.settings import Scheduling
from stageline.engine.types import HandOverRecord, RequestRecord
from stageline.runtime.deployment import Deployment
from stageline.testing import Ignoring, ListWorkload, request, uniform_plan

NS = 1e-9
SOURCE, TARGET = ("0", "p", "egress"), ("1", "d", "ingress")


def fleet(**settings: object) -> Fleet:
    """One prefill and one decode replica."""
    wide = uniform_plan(1, kv_block_bytes=10, state_bytes=3)
    tight = uniform_plan(1, kv_block_bytes=10, state_bytes=3, kv_budget_bytes=13)
    scheduling = Scheduling(**settings)
    pools = (
        Pool(name="p", plan=wide, role="prefill", scheduling=scheduling),
        Pool(name="d", plan=tight, role="decode"),
        Pool(name="b", plan=msgspec.structs.replace(wide, model="other")),
    )
    return Fleet(pools=pools, hand_over=HandOver(bytes_per_s=10**9, latency_ns=5))


def roomy(**settings: object) -> Fleet:
    """The same, but that the decode replica has room for all."""
    tight = fleet(**settings)
    source, target, other = tight.pools
    return msgspec.structs.replace(tight, pools=(source, msgspec.structs.replace(target, plan=source.plan), other))


def prefilled(served: Fleet, **more: object) -> Router:
    """Both prompts are back, and the first one's transfer is booked."""
    router = Router(serve(served), 0, Ignoring())
    for index in range(2):
        router.arrive(request(index, model="test", **more))
    router.form(0, 0)
    router.complete(0, 100)
    for _ in range(2):
        router.do_due(100)
    router.form(1, 100)
    return router


def values(families: list[Metric]) -> dict[str, dict[tuple[str, ...], float]]:
    """By name without `stageline_`, and by label values."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in families:
        for sample in family.samples:
            labels = tuple(sample.labels[name] for name in ("replica", "pool", "direction") if name in sample.labels)
            found.setdefault(sample.name.removeprefix("stageline_"), {})[labels] = sample.value
    return found


def seen(router: Router, now_ns: int) -> dict[str, dict[tuple[str, ...], float]]:
    """All that is exported."""
    counts = port_counts(router, now_ns)
    return values([*port_families(router.fleet, counts), *kv_families(router.fleet, router)])


def test_what_is_under_way_and_what_waits() -> None:
    router = prefilled(fleet())
    found = seen(router, 104)
    assert found["port_busy_seconds_total"] == {SOURCE: pytest.approx(4 * NS), TARGET: pytest.approx(4 * NS)}
    assert found["port_bytes_total"] == {SOURCE: 0, TARGET: 0}
    assert found["kv_in_flight_bytes"] == {SOURCE: 13, TARGET: 13}
    assert found["kv_in_flight_requests"] == {SOURCE: 1, TARGET: 1}
    assert (found["kv_pinned_bytes"], found["kv_pinned_requests"]) == ({("0", "p"): 26}, {("0", "p"): 2})
    assert found["hand_overs_waiting"] == {("1", "d"): 1}

    router.do_due(113)
    found = seen(router, 200)
    assert found["port_busy_seconds_total"] == {SOURCE: pytest.approx(13 * NS), TARGET: pytest.approx(13 * NS)}
    assert found["port_bytes_total"] == {SOURCE: 13, TARGET: 13}
    assert found["kv_in_flight_bytes"] == {SOURCE: 13, TARGET: 13}
    assert found["kv_pinned_bytes"] == {("0", "p"): 13}

    router.do_due(118)
    found = seen(router, 200)
    assert found["kv_in_flight_bytes"] == {SOURCE: 0, TARGET: 0}
    assert found["kv_in_flight_requests"] == {SOURCE: 0, TARGET: 0}
    assert found["hand_overs_waiting"] == {("1", "d"): 1}


def test_a_transfer_that_waits_for_its_port_is_not_busy() -> None:
    """Both have room: the second starts at 113."""
    router = prefilled(roomy())
    assert seen(router, 110)["port_busy_seconds_total"] == {SOURCE: 10 * NS, TARGET: 10 * NS}
    assert seen(router, 120)["port_busy_seconds_total"] == {SOURCE: 20 * NS, TARGET: 20 * NS}
    assert seen(router, 900)["port_busy_seconds_total"] == {SOURCE: 26 * NS, TARGET: 26 * NS}
    assert seen(router, 110)["kv_in_flight_bytes"] == {SOURCE: 26, TARGET: 26}


def test_a_pinned_block_that_two_prompts_share_counts_once() -> None:
    """Two blocks each, of which the cache has the first; their states are their own."""
    router = prefilled(roomy(prefix_cache=True, hash_block_tokens=16), prompt_tokens=17, hash_ids=(7, 8))
    assert len(router.replicas[0].pinned) == 2
    assert seen(router, 100)["kv_pinned_bytes"] == {("0", "p"): 3 * 10 + 2 * 3}


def test_histograms_of_the_decode_replica() -> None:
    """18 ns each from the start of the transfer; the second one's room came at 318."""
    served = serve(fleet())
    metrics = ServingMetrics(served)
    router = Router(served, 0, metrics)
    metrics.begin(router)
    conductor = Conductor(router, ListWorkload([request(i, model="test") for i in range(2)]))
    drive(conductor, make_pipelines(served, 0))
    found = values(list(metrics.collect()))
    assert found["hand_over_seconds_count"] == found["kv_transfer_seconds_count"] == {("1", "d"): 2}
    assert found["kv_transfer_seconds_sum"] == {("1", "d"): pytest.approx(2 * 18 * NS)}
    assert found["hand_over_seconds_sum"] == {("1", "d"): pytest.approx((18 + 236) * NS)}


def test_counters_go_on_when_a_session_has_ended() -> None:
    document = fleet()
    served = serve(document)
    router = Router(served, 0, Ignoring())
    conductor = Conductor(router, ListWorkload([request(i, model="test") for i in range(2)]))
    session = SimpleNamespace(router=router, conductor=conductor, frames=(0, 0), lost_requests=0, unseen_requests=0)
    live = [session]
    collector = RouterCollector(Deployment(document), dict, lambda: live[0])
    collector.on_session()
    drive(conductor, make_pipelines(served, 0))
    live[0] = None
    found = values(list(collector.collect()))
    assert found["port_bytes_total"] == {SOURCE: 26, TARGET: 26}
    assert found["port_busy_seconds_total"] == {SOURCE: pytest.approx(26 * NS), TARGET: pytest.approx(26 * NS)}
    assert found["kv_pinned_bytes"] == {("0", "p"): 0}


@pytest.mark.parametrize(("landed_ns", "replica"), [(9, 1), (None, 0)])
def test_preemptions_count_where_a_request_decodes(landed_ns: int | None, replica: int) -> None:
    metrics = ServingMetrics(serve(fleet()))
    moved = HandOverRecord(decode_replica=1, reserved_ns=1, start_ns=2, end_ns=8, landed_ns=landed_ns, sent_bytes=13)
    record = RequestRecord(
        index=0, replica=0, arrival_ns=0, admitted_ns=0, first_token_ns=1, last_token_ns=20, prompt_tokens=4,
        output_tokens=3, preemptions=2, outcome="cancelled", hand_over=moved,
    )  # fmt: skip
    metrics.request(record)
    (found,) = [family for family in metrics.collect() if family.name == "vllm:num_preemptions"]
    assert [s.value for s in found.samples] == [2 * (r == replica) for r in range(3)]


def test_chunks_that_are_under_way_count_one_after_the_other() -> None:
    """Three chunks, back at 100, 200 and 300: a block takes 1 us of the port, the state of the last one 300 ns more."""
    document = roomy(batched_tokens=16)
    network = HandOver(bytes_per_s=10**7, latency_ns=5, order="destination-first", streamed=True)
    router = Router(serve(msgspec.structs.replace(document, hand_over=network)), 0, Ignoring())
    router.arrive(request(model="test", prompt_tokens=48))
    router.form(1, 0)
    for now_ns in (0, 100, 200):
        router.form(0, now_ns)
        router.complete(0, now_ns + 100)
    assert seen(router, 300)["kv_in_flight_bytes"] == {SOURCE: 33, TARGET: 33}
    left = [(1100, 33, 10), (1105, 23, 10), (2100, 23, 20), (2105, 13, 20), (3400, 13, 33), (3405, 0, 33)]
    for now_ns, moving, sent in left:
        router.do_due(now_ns)
        found = seen(router, now_ns)
        assert found["kv_in_flight_bytes"] == {SOURCE: moving, TARGET: moving}
        assert found["port_bytes_total"] == {SOURCE: sent, TARGET: sent}
        assert found["port_busy_seconds_total"][SOURCE] == pytest.approx((min(now_ns, 3400) - 100) * NS)
