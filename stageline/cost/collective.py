"""Time of an all-reduce inside a tensor group, as latency + bytes x rate."""

from stageline.hardware.device import Device, Network


def all_reduce(device: Device, ranks: int) -> tuple[float, float]:
    """(latency_ns, ns_per_byte) of one all-reduce over `ranks` devices; (0, 0) for one.

    A measured whole-operation row of the device where there is one, else a ring: 2 (n - 1) a + 2 (n - 1) / n * S / B on
    the scale-up link, or on the scale-out link when the group is larger than the domain.
    """
    if ranks == 1:
        return (0.0, 0.0)
    for row in device.all_reduce:
        if row.devices == ranks:
            return (float(row.latency_ns), 1e9 / row.bytes_per_s)
    up = device.scale_up
    link: Network = up if up and ranks <= up.devices else device.scale_out
    return (2.0 * (ranks - 1) * link.latency_ns, 2.0 * (ranks - 1) / ranks * 1e9 / link.bytes_per_s)
