"""The first microbatches of a run, selected from its events for drawing."""

from collections.abc import Iterable, Iterator

import msgspec

from stageline.report.events import Gap, Kv, Served, StageEvent
from stageline.report.idle import gap_pieces

GapPiece = tuple[int, str, int, int]  # stage, cause, start_ns, length_ns


class StageTimeline(msgspec.Struct, frozen=True):
    """Services of one replica that begin in [start_ns, end_ns), and the gaps before them, clipped to that range."""

    start_ns: int
    end_ns: int
    services: tuple[Served, ...]
    gaps: tuple[GapPiece, ...]


def first_microbatches(events: Iterable[StageEvent], visits: int, count: int, replica: int = 0) -> StageTimeline | None:
    """The range from the first arrival at a stage to the end of microbatch `count - 1`; None without any service.

    Reads only as far as needed: at every visit microbatches pass in the order of their numbers, so that once each
    visit has seen a number well beyond `count`, no earlier one can follow.
    """
    services, gaps = _collect(events, visits, count + 2 * visits + 64, replica)
    if not services:
        return None
    start_ns = min(s.arrival_ns for s in services)
    end_ns = max(s.end_ns for s in services if s.number < max(count, services[0].number + 1))
    shown = tuple(s for s in services if s.start_ns < end_ns)
    return StageTimeline(start_ns, end_ns, shown, (*_fill(shown, start_ns), *_pieces(gaps, start_ns, end_ns)))


def _collect(events: Iterable[StageEvent], visits: int, beyond: int, replica: int) -> tuple[list[Served], list[Gap]]:
    services, gaps, passed = list[Served](), list[Gap](), set[int]()
    for event in events:
        if event.replica != replica or isinstance(event, Kv):
            continue
        if isinstance(event, Gap):
            gaps.append(event)
        elif event.number < beyond:
            services.append(event)
        else:
            passed.add(event.visit)
            if len(passed) == visits:
                break
    return services, gaps


def _fill(services: Iterable[Served], start_ns: int) -> Iterator[GapPiece]:
    """What lies before a stage's first service; engines report it at the end of a run, not as a gap."""
    first: dict[int, int] = {}
    for service in services:
        first[service.stage] = min(first.get(service.stage, service.start_ns), service.start_ns)
    return ((stage, "fill", start_ns, at - start_ns) for stage, at in first.items() if at > start_ns)


def _pieces(gaps: Iterable[Gap], start_ns: int, end_ns: int) -> Iterator[GapPiece]:
    for gap in gaps:
        for cause, begin, end in gap_pieces(gap):
            low, high = max(begin, start_ns), min(end, end_ns)
            if low < high:
                yield gap.stage, cause, low, high - low
