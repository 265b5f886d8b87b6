"""Times of collectives in the alpha-beta model, for every algorithm that a stage's group can use.

Where there are several (one-shot or ring, direct or hierarchical), a run takes the fastest at each size.
"""

from collections.abc import Iterable
from typing import NamedTuple

from stageline.cost.topology import domain_devices
from stageline.hardware.device import Device, Network


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
    - the device's measured time for n devices, or else a ring: 2 (n - 1) a + 2 (n - 1) / n x S / B;
    - one-shot, if the device has it and the link is scale-up: every rank reads all others' vectors, (n - 1) S / B.

    `in_domain`: how many ranks share a scale-up domain; None: as many as fit, as if they were neighbours. Measured
    times apply to neighbours only, because that is how they were measured.
    """
    if ranks == 1:
        return ()
    packed = min(ranks, domain_devices(device))
    in_domain = packed if in_domain is None else in_domain
    link = network_of(device, ranks, in_domain)
    ring = AlphaBeta(2.0 * (ranks - 1) * link.latency_ns, 2.0 * (ranks - 1) / ranks * 1e9 / link.bytes_per_s)
    rows = [r for r in device.all_reduce if r.devices == ranks and in_domain == packed]
    measured = (AlphaBeta(float(r.latency_ns), 1e9 / r.bytes_per_s) for r in rows)
    algorithms = [next(measured, ring)]
    if device.one_shot_ns and link is device.scale_up:
        algorithms.append(AlphaBeta(float(device.one_shot_ns), (ranks - 1) * 1e9 / link.bytes_per_s))
    return tuple(algorithms)


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
