"""Conservative synchronisation: whatever the order of delivery and the window, the in-process engine's records."""

import pytest

from tests.property.checks import run_case
from tests.property.delivery import Session


def deliver(kind: str, window_frames: int, first: int) -> list[Session]:
    """Sixty scenarios; the cluster of each."""
    case = f"delivery-{window_frames}"
    return [run_case(case, kind, number)[0] for number in range(first, first + 60)]


@pytest.mark.parametrize("window_frames", [0, 1, 2, 5])
def test_any_delivery_gives_the_same_records(window_frames: int) -> None:
    met = deliver("plain", window_frames, 20_000 + 1000 * window_frames)
    assert any(p.promise_frames for p in met), "no scenario needed a promise"
    assert any(p.most_in_a_frame > 1 for p in met), "no frame carried two microbatches"


@pytest.mark.parametrize("window_frames", [1, 3])
def test_any_delivery_gives_the_same_records_with_a_prefix_cache(window_frames: int) -> None:
    met = deliver("sharing", window_frames, 30_000 + 1000 * window_frames)
    caches = [r.cache for p in met for r in p.router.replicas if r.cache is not None]
    assert sum(cache.stats().hit_blocks for cache in caches) > 50


def test_any_delivery_gives_the_same_records_with_a_prefix_cache_and_sliding_windows() -> None:
    met = deliver("cached-windows", 2, 50_000)
    caches = [r.cache for p in met for r in p.router.replicas if r.cache is not None]
    assert sum(cache.stats().hit_blocks for cache in caches) > 50


@pytest.mark.parametrize("window_frames", [0, 2])
def test_any_delivery_gives_the_same_records_where_kv_is_handed_over(window_frames: int) -> None:
    kinds = ("handover", "handover-leaving", "handover-crowded")
    case = f"fleet-delivery-{window_frames}"
    met = [run_case(case, kind, number) for kind in kinds for number in range(window_frames, window_frames + 8)]
    landed = [r for _, records in met for r in records if r.hand_over is not None and r.hand_over.landed_ns]
    assert len(landed) > 20


@pytest.mark.parametrize(("kind", "window_frames"), [("both", 0), ("both-leaving", 2)])
def test_any_delivery_gives_the_same_records_of_a_fleet(kind: str, window_frames: int) -> None:
    met = [run_case(f"fleet-delivery-{window_frames}", kind, number)[0] for number in range(30)]
    revisits = [{route.revisits for route in session.routes} for session in met]
    assert {False, True} in revisits, "no fleet had plain routes beside such with revisits"
    assert any(session.promise_frames for session in met), "no scenario needed a promise"
    served = [{r.index for r in session.router.replicas if r.formed} for session in met]
    assert max(map(len, served)) > 2, "no fleet had several pools at work"


@pytest.mark.parametrize("window_frames", [1, 3])
def test_any_delivery_gives_the_same_records_with_speculation(window_frames: int) -> None:
    met = deliver("speculating", window_frames, 40_000 + 1000 * window_frames)
    speculations = [r.speculation for p in met for r in p.router.replicas if r.speculation is not None]
    assert sum(s.stats().accepted_tokens for s in speculations) > 50


def test_clients_that_leave_leave_no_block_behind() -> None:
    """All laws after every event, and the same records from any delivery."""
    cancelled = hits = 0
    for number in range(60):
        session, records = run_case("delivery-2", "leaving", number)
        cancelled += sum(record.outcome == "cancelled" for record in records)
        hits += sum(r.cache.stats().hit_blocks for r in session.router.replicas if r.cache is not None)
    assert cancelled > 20
    assert hits > 20
