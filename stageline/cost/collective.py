"""Collectives of a stage's group, as straight lines in the number of bytes: latency + bytes x rate.

Where there are several ways (one-shot or ring, direct or node by node), the quicker one at each size is taken.
"""

from collections.abc import Iterable
from typing import NamedTuple

from stageline.hardware.device import Device, Network


class Line(NamedTuple):
    """latency_ns + ns_per_byte x bytes."""

    latency_ns: float
    ns_per_byte: float


def network_of(device: Device, ranks: int) -> Network:
    """The scale-up link if the group lies in one domain, else the scale-out link."""
    up = device.scale_up
    return up if up and ranks <= up.devices else device.scale_out


def all_reduce(device: Device, ranks: int) -> tuple[Line, ...]:
    """Ways of an all-reduce of S bytes over `ranks` devices; none for one.

    A measured whole-operation row of the device where there is one, else a ring: 2 (n - 1) a + 2 (n - 1) / n * S / B.
    Inside a domain also one-shot, where the device has it: every rank reads all others', (n - 1) S / B.
    """
    if ranks == 1:
        return ()
    link = network_of(device, ranks)
    ring = Line(2.0 * (ranks - 1) * link.latency_ns, 2.0 * (ranks - 1) / ranks * 1e9 / link.bytes_per_s)
    measured = (Line(float(r.latency_ns), 1e9 / r.bytes_per_s) for r in device.all_reduce if r.devices == ranks)
    ways = [next(measured, ring)]
    if device.one_shot_ns and link is device.scale_up:
        ways.append(Line(float(device.one_shot_ns), (ranks - 1) * 1e9 / link.bytes_per_s))
    return tuple(ways)


def half(lines: Iterable[Line]) -> tuple[Line, ...]:
    """A reduce-scatter or an all-gather: half of an all-reduce. One-shot's latency is not halved by splitting it."""
    return tuple(Line(line.latency_ns / 2, line.ns_per_byte / 2) for line in lines)


def all_to_all(device: Device, ranks: int, copies: int) -> tuple[Line, ...]:
    """Ways of an all-to-all in which a rank sends S bytes, `copies` of each token's vector; none for one rank.

    (n - 1) a + (n - 1) / n * S / B, or the device's measured row of the next larger group. Across domains also node
    by node: a token crosses once to each domain that needs it, at most min(copies, domains), then spreads inside.
    """
    if ranks == 1:
        return ()
    link = network_of(device, ranks)
    plain = Line(float((ranks - 1) * link.latency_ns), (ranks - 1) / ranks * 1e9 / link.bytes_per_s)
    rows = sorted((r for r in device.all_to_all if r.devices >= ranks), key=lambda r: r.devices)
    ways = [Line(float(rows[0].latency_ns), 1e9 / rows[0].bytes_per_s) if rows else plain]
    up = device.scale_up
    if up and link is not up:
        domains = -(-ranks // up.devices)
        out = min(copies, domains - 1) / copies * 1e9 / link.bytes_per_s
        ways.append(Line(float(domains * link.latency_ns + up.devices * up.latency_ns), out + 1e9 / up.bytes_per_s))
    return tuple(ways)
