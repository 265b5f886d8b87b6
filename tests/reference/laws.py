"""The numbered laws L1 to L7 of a reference run: one function each, called after every event or at the end."""

from collections import Counter
from itertools import pairwise

from tests.reference.engine import Engine
from tests.reference.results import Results


def l1_requests(engine: Engine) -> None:
    """Requests in = finished + refused + in the system."""
    in_system = sum(replica.requests for replica in engine.replicas)
    assert engine.arrivals == len(engine.finished) + len(engine.refused) + in_system, "L1"


def l2_ledgers(engine: Engine) -> None:
    """No ledger, mirror or real, is negative or over its budget."""
    for replica, stages in zip(engine.replicas, engine.stages, strict=True):
        for ledger in [*replica.ledgers, *(stage.ledger for stage in stages)]:
            assert 0 <= ledger.used_bytes() <= ledger.plan.kv_budget_bytes, "L2"


def l2_ledgers_at_end(engine: Engine) -> None:
    """All ledgers, mirrors and real ones, are empty."""
    for replica, stages in zip(engine.replicas, engine.stages, strict=True):
        assert not any(ledger.held for ledger in replica.ledgers), "L2"
        assert not any(stage.ledger.held for stage in stages), "L2"


def l3_time(engine: Engine) -> None:
    """Time never runs backwards on a stage or a link."""
    for stage in (stage for stages in engine.stages for stage in stages):
        for service in stage.log[-1:]:
            assert service.arrival_ns <= service.start_ns < service.end_ns, "L3"
        for before, after in pairwise(stage.log[-2:]):
            assert before.end_ns <= after.start_ns and before.arrival_ns <= after.arrival_ns, "L3"
    for link in (link for links in engine.links for link in links):
        for (_, free_ns, arrival_ns), (depart_ns, _, next_arrival_ns) in pairwise(link.log[-2:]):
            assert free_ns <= depart_ns and arrival_ns <= next_arrival_ns, "L3"


def l4_route(engine: Engine) -> None:
    """At the end: every microbatch visited the whole route in order, once each."""
    for replica, stages in zip(engine.replicas, engine.stages, strict=True):
        services = sorted((s for stage in stages for s in stage.log), key=lambda s: s.start_ns)
        for number in range(replica.microbatches):
            mine = [service for service in services if service.number == number]
            assert [service.visit for service in mine] == list(range(len(replica.plan.visits))), "L4"
            for before, after in pairwise(mine):
                assert before.end_ns <= after.arrival_ns, "L4"


def l5_decode(engine: Engine) -> None:
    """No sequence has two decode steps in flight, nor one beside a chunk of its prompt."""
    for replica in engine.replicas:
        members = [m for microbatch in replica.in_flight for m in microbatch.members]
        decodes = Counter(m.sequence.index for m in members if m.decode)
        carried = Counter(m.sequence.index for m in members)
        assert all(carried[index] == 1 for index in decodes), "L5"


def l6_window(results: Results) -> None:
    """At the end: busy + idle causes = window, and no cause is negative."""
    for record in results.stages:
        assert record.window_ns == results.window_end_ns - results.window_start_ns, "L6"
        assert record.busy_ns + sum(record.idle_ns.values()) == record.window_ns, "L6"
        assert min(record.idle_ns.values()) >= 0, "L6"


def l7_credits(engine: Engine) -> None:
    """In flight <= credits."""
    assert all(len(replica.in_flight) <= replica.credits_total for replica in engine.replicas), "L7"


def check_event(engine: Engine) -> None:
    """The laws that hold after every event."""
    l1_requests(engine)
    l2_ledgers(engine)
    l3_time(engine)
    l5_decode(engine)
    l7_credits(engine)


def check_end(engine: Engine, results: Results) -> None:
    """The laws of a finished run."""
    l2_ledgers_at_end(engine)
    l4_route(engine)
    l6_window(results)
