"""Where the ranks of a group sit: how many of them share a fast domain. Device d lies in domain d // size."""

from collections import Counter
from collections.abc import Sequence
from functools import cache

from stageline.hardware.device import Device

Devices = range | tuple[int, ...]  # positions, counted from the group's first


def domain_devices(device: Device) -> int:
    """Devices that share the scale-up link; 1 where there is none."""
    return device.scale_up.devices if device.scale_up else 1


@cache
def ranks_in_domain(domain: int, group: Devices, starts: Devices) -> int:
    """The most ranks of a group that share one domain, in the least lucky of its copies, which begin at `starts`."""
    return min(max(Counter((start + d) // domain for d in group).values()) for start in starts)


def joined(outer: Sequence[int], inner: Sequence[int]) -> tuple[int, ...]:
    """The group that two nested axes make together."""
    return tuple(a + b for a in outer for b in inner)
