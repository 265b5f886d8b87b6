"""Collectives of a stage's group, as straight lines in the number of bytes: latency + bytes x rate.

Where there are several ways (one-shot or ring, direct or node by node), the quicker one at each size is taken.
"""

from collections.abc import Iterable
from typing import NamedTuple

from stageline.cost.topology import domain_devices
from stageline.hardware.device import Device, Network


class AlphaBeta(NamedTuple):
    """latency_ns + ns_per_byte x bytes."""

    latency_ns: float
    ns_per_byte: float


def network_of(device: Device, ranks: int, near: int) -> Network:
    """The scale-up link if all of a group's ranks lie in one domain (`near` = `ranks`), else the scale-out link."""
    return device.scale_up if device.scale_up and near == ranks else device.scale_out


def all_reduce(device: Device, ranks: int, near: int | None = None) -> tuple[AlphaBeta, ...]:
    """Ways of an all-reduce of S bytes over `ranks` devices, `near` of them in a domain; none for one.

    A measured whole-operation row of the device where there is one, else a ring: 2 (n - 1) a + 2 (n - 1) / n * S / B.
    Inside a domain also one-shot, where the device has it: every rank reads all others', (n - 1) S / B. Without `near`
    the ranks are neighbours; rows were measured so, and serve such groups only.
    """
    if ranks == 1:
        return ()
    packed = min(ranks, domain_devices(device))
    near = packed if near is None else near
    link = network_of(device, ranks, near)
    ring = AlphaBeta(2.0 * (ranks - 1) * link.latency_ns, 2.0 * (ranks - 1) / ranks * 1e9 / link.bytes_per_s)
    rows = [r for r in device.all_reduce if r.devices == ranks and near == packed]
    measured = (AlphaBeta(float(r.latency_ns), 1e9 / r.bytes_per_s) for r in rows)
    ways = [next(measured, ring)]
    if device.one_shot_ns and link is device.scale_up:
        ways.append(AlphaBeta(float(device.one_shot_ns), (ranks - 1) * 1e9 / link.bytes_per_s))
    return tuple(ways)


def half(lines: Iterable[AlphaBeta]) -> tuple[AlphaBeta, ...]:
    """A reduce-scatter or an all-gather: half of an all-reduce, whichever way it goes."""
    return tuple(AlphaBeta(line.latency_ns / 2, line.ns_per_byte / 2) for line in lines)


def all_to_all(device: Device, ranks: int, copies: int, near: int | None = None) -> tuple[AlphaBeta, ...]:
    """Ways of an all-to-all in which a rank sends S bytes, `copies` of each token's vector; none for one rank.

    (n - 1) a + (n - 1) / n * S / B, or the device's measured row of the next larger group. Across domains also node
    by node: a token crosses once to each domain that needs it, at most min(copies, domains), then spreads inside.
    `near`: as in `all_reduce`.
    """
    if ranks == 1:
        return ()
    packed = min(ranks, domain_devices(device))
    near = packed if near is None else near
    link = network_of(device, ranks, near)
    plain = AlphaBeta(float((ranks - 1) * link.latency_ns), (ranks - 1) / ranks * 1e9 / link.bytes_per_s)
    rows = sorted((r for r in device.all_to_all if r.devices >= ranks), key=lambda r: r.devices)
    measured = rows and near == packed
    ways = [AlphaBeta(float(rows[0].latency_ns), 1e9 / rows[0].bytes_per_s) if measured else plain]
    up = device.scale_up
    if up and link is not up:
        domains = -(-ranks // near)
        out = min(copies, domains - 1) / copies * 1e9 / link.bytes_per_s
        ways.append(AlphaBeta(float(domains * link.latency_ns + near * up.latency_ns), out + 1e9 / up.bytes_per_s))
    return tuple(ways)
