"""KV that goes from prefill to decode replicas, for Prometheus: what ports have sent, what is under way, what waits."""

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import Metric

from stageline.engine.handover import HandOvers
from stageline.engine.router import Router
from stageline.engine.served import ServedFleet
from stageline.runtime import metric_names as names
from stageline.units import NS_PER_S

Way = tuple[int, str]  # replica, and "egress" or "ingress"
Counts = Counter[tuple[str, ...]]


def ways(fleet: ServedFleet) -> list[Way]:
    """Every port that KV can go through; none without hand-overs."""
    if fleet.hand_over is None:
        return []
    takes = ("decode", "both") if fleet.hand_over.decode_on_both else ("decode",)
    out = [(r, "egress") for r, pool in enumerate(fleet.pool_of) if pool.role == "prefill"]
    return out + [(r, "ingress") for r, pool in enumerate(fleet.pool_of) if pool.role in takes]


def port_counts(router: Router, now_ns: int) -> Counts:
    """Busy ns and bytes of each port. A transfer under way is busy up to now; its bytes count when all are sent."""
    counts: Counts = Counter()
    if (found := router.hand_overs) is None:
        return counts
    busy_ns, sent_bytes = _ports(found)
    for passage in found.passages.values():
        for booked in passage.not_sent:
            so_far_ns = max(0, min(now_ns, booked.end_ns) - booked.start_ns)
            busy_ns[booked.source, "egress"] += so_far_ns
            busy_ns[booked.destination, "ingress"] += so_far_ns
    for way in ways(router.fleet):
        labels = _labels(router.fleet, way)
        counts[names.PORT_BUSY.name, *labels] = busy_ns[way]
        counts[names.PORT_BYTES.name, *labels] = sent_bytes[way]
    return counts


def _ports(found: HandOvers) -> tuple[Counter[Way], Counter[Way]]:
    """Busy ns and bytes of transfers that have ended."""
    ports = found.ports
    busy_ns, sent_bytes = Counter[Way](), Counter[Way]()
    for direction, busy, sent in (
        ("egress", ports.egress_busy_ns, ports.egress_bytes),
        ("ingress", ports.ingress_busy_ns, ports.ingress_bytes),
    ):
        busy_ns.update({(r, direction): ns for r, ns in enumerate(busy)})
        sent_bytes.update({(r, direction): size for r, size in enumerate(sent)})
    return busy_ns, sent_bytes


def port_families(fleet: ServedFleet, counts: Counts) -> Iterator[Metric]:
    """The counters of all ports."""
    labels = [_labels(fleet, way) for way in ways(fleet)]
    yield names.PORT_BUSY.family((each, counts[names.PORT_BUSY.name, *each] / NS_PER_S) for each in labels)
    yield names.PORT_BYTES.family((each, counts[names.PORT_BYTES.name, *each]) for each in labels)


def kv_families(fleet: ServedFleet, router: Router | None) -> Iterator[Metric]:
    """What is under way, pinned and waiting now; zeros while nothing is served."""
    found = router.hand_overs if router else None
    requests, sizes, waiting = Counter[Way](), Counter[Way](), Counter[int]()
    for passage in found.passages.values() if found else ():
        if passage.booked:
            first = passage.booked[0]
            size = sum(booked.size for booked in passage.booked)
            for way in ((first.source, "egress"), (first.destination, "ingress")):
                requests[way] += 1
                sizes[way] += size
        elif passage.awaits_room and passage.decode is not None:
            waiting[passage.decode.replica] += 1
    every = [(way, _labels(fleet, way)) for way in ways(fleet)]
    yield names.KV_MOVING.family((labels, sizes[way]) for way, labels in every)
    yield names.KV_MOVING_REQUESTS.family((labels, requests[way]) for way, labels in every)
    sources = [(way[0], labels[:2]) for way, labels in every if way[1] == "egress"]
    held = router.replicas if router else None
    yield names.KV_PINNED.family((labels, held[r].pinned_bytes() if held else 0) for r, labels in sources)
    yield names.KV_PINNED_REQUESTS.family((labels, len(held[r].pinned) if held else 0) for r, labels in sources)
    targets = [(way[0], labels[:2]) for way, labels in every if way[1] == "ingress"]
    yield names.HAND_OVERS_WAITING.family((labels, waiting[r]) for r, labels in targets)


def _labels(fleet: ServedFleet, way: Way) -> tuple[str, str, str]:
    replica, direction = way
    return str(replica), fleet.pool_of[replica].name, direction
