"""How many ranks of a group share a scale-up domain. Device d belongs to domain d // domain size."""

from collections import Counter
from collections.abc import Sequence
from functools import cache

from stageline.hardware.device import Device

Devices = range | tuple[int, ...]  # positions relative to the group's first device


def domain_devices(device: Device) -> int:
    """The number of devices that share a scale-up link; 1 without such a link."""
    return device.scale_up.devices if device.scale_up else 1


@cache
def ranks_in_domain(domain: int, group: Devices, starts: Devices) -> int:
    """The most ranks of a group that one domain holds, for the worst of the group's copies, which begin at `starts`."""
    return min(max(Counter((start + d) // domain for d in group).values()) for start in starts)


def joined(outer: Sequence[int], inner: Sequence[int]) -> tuple[int, ...]:
    """The devices of two nested axes."""
    return tuple(a + b for a in outer for b in inner)
