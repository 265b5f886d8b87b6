"""Times of collectives in the alpha-beta model, for every algorithm that a stage's group can use.

Where there are several (one-shot or ring, direct or hierarchical), a run takes the fastest at each size.
"""

from collections.abc import Iterable
from itertools import product
from typing import NamedTuple

from stageline.cost.topology import domain_devices
from stageline.hardware.device import Device
from stageline.hardware.networks import MeasuredCollective, Network


class AlphaBeta(NamedTuple):
    """One algorithm of a collective takes latency_ns (alpha) + ns_per_byte (beta) x bytes."""

    latency_ns: float
    ns_per_byte: float


def network_of(device: Device, ranks: int, in_domain: int) -> Network:
    """The scale-up link if one domain holds all ranks (`in_domain` = `ranks`), else the scale-out link."""
    return device.scale_up if device.scale_up and in_domain == ranks else device.scale_out


def all_reduce(device: Device, ranks: int, in_domain: int | None = None) -> tuple[AlphaBeta, ...]:
    """Algorithms of an all-reduce of S bytes over n = `ranks` devices; none for one rank.

    With latency a and bandwidth B of the link:
    - the device's measured algorithms for n devices (those of its kernel tables, if it has any), or else a ring:
      2 (n - 1) a + 2 (n - 1) / n x S / B;
    - one-shot, if the device has it, the tables don't and the link is scale-up: every rank reads all others' vectors,
      (n - 1) S / B;
    - hierarchical, if the ranks lie in several equal domains with faster links inside: a reduce-scatter
      inside, an all-reduce of S / m between the domains over the scale-out links of all m devices of one, an all-gather
      inside.

    `in_domain`: how many ranks share a scale-up domain; None: as many as fit, as if they were neighbours. Measured
    times apply to neighbours only, because that is how they were measured.
    """
    if ranks == 1:
        return ()
    packed = min(ranks, domain_devices(device))
    in_domain = packed if in_domain is None else in_domain
    link = network_of(device, ranks, in_domain)
    ring = AlphaBeta(2.0 * (ranks - 1) * link.latency_ns, 2.0 * (ranks - 1) / ranks * 1e9 / link.bytes_per_s)
    tables = device.costs.all_reduce if device.costs else ()
    measured = _measured(tables, ranks, in_domain == packed)
    algorithms = list(measured or _measured(device.all_reduce, ranks, in_domain == packed) or (ring,))
    up = device.scale_up
    if up and up.bytes_per_s > device.scale_out.bytes_per_s and 1 < in_domain < ranks and ranks % in_domain == 0:
        algorithms += _hierarchical(device, ranks // in_domain, in_domain)
    if device.one_shot_ns and link is device.scale_up and not measured:
        algorithms.append(AlphaBeta(float(device.one_shot_ns), (ranks - 1) * 1e9 / link.bytes_per_s))
    return tuple(algorithms)


def _measured(rows: Iterable[MeasuredCollective], ranks: int, neighbours: bool) -> tuple[AlphaBeta, ...]:
    """One per row for that many ranks; none unless they are neighbours."""
    found = (r for r in rows if r.devices == ranks and neighbours)
    return tuple(AlphaBeta(float(r.latency_ns), 1e9 / r.bytes_per_s) for r in found)


def _hierarchical(device: Device, domains: int, inside: int) -> list[AlphaBeta]:
    """An all-reduce over `domains` x `inside` devices."""
    rows = device.costs and (device.costs.reduce_scatter, device.costs.all_gather)
    halves = [_measured(part, inside, neighbours=True) for part in rows or ((), ())]
    whole = all_reduce(device, inside, inside)
    scatter, gather = (part or half(whole) for part in halves)
    rails = device.scale_out
    latency = 2.0 * (domains - 1) * rails.latency_ns
    beta = 2.0 * (domains - 1) / domains * 1e9 / rails.bytes_per_s / inside
    return [
        AlphaBeta(a.latency_ns + b.latency_ns + latency, a.ns_per_byte + b.ns_per_byte + beta)
        for a, b in product(scatter, gather)
    ]


def half(algorithms: Iterable[AlphaBeta]) -> tuple[AlphaBeta, ...]:
    """A reduce-scatter or an all-gather: half of an all-reduce, with every algorithm."""
    return tuple(AlphaBeta(a.latency_ns / 2, a.ns_per_byte / 2) for a in algorithms)


def all_to_all(device: Device, ranks: int, copies: int, in_domain: int | None = None) -> tuple[AlphaBeta, ...]:
    """Algorithms of an all-to-all in which each of n = `ranks` sends S bytes, `copies` of each token's vector.

    None for one rank. With latency a and bandwidth B of the link:
    - the device's measured time for the next larger group, or else direct: (n - 1) a + (n - 1) / n x S / B;
    - hierarchical, across domains: a token crosses once to each other domain that needs it, at most `copies` of them,
      and is copied inside the domain.

    `in_domain`: as in `all_reduce`.
    """
    if ranks == 1:
        return ()
    packed = min(ranks, domain_devices(device))
    in_domain = packed if in_domain is None else in_domain
    link = network_of(device, ranks, in_domain)
    direct = AlphaBeta(float((ranks - 1) * link.latency_ns), (ranks - 1) / ranks * 1e9 / link.bytes_per_s)
    rows = sorted((r for r in device.all_to_all if r.devices >= ranks), key=lambda r: r.devices)
    measured = rows and in_domain == packed
    algorithms = [AlphaBeta(float(rows[0].latency_ns), 1e9 / rows[0].bytes_per_s) if measured else direct]
    up = device.scale_up
    if up and link is not up:
        domains = -(-ranks // in_domain)
        latency_ns = float(domains * link.latency_ns + in_domain * up.latency_ns)
        across = min(copies, domains - 1) / copies * 1e9 / link.bytes_per_s
        algorithms.append(AlphaBeta(latency_ns, across + 1e9 / up.bytes_per_s))
    return tuple(algorithms)
