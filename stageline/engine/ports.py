"""The ports of a fleet's replicas, through which KV travels (rule 11)."""

from collections.abc import Sequence as Seq
from typing import NamedTuple


def moving_ns(size: int, bytes_per_s: int) -> int:
    """How long `size` bytes of KV take at a bandwidth: rounded up, and at least 1 ns."""
    return max(1, -(-size * 10**9 // bytes_per_s))


class Port(NamedTuple):
    """One way out of a replica and one into it. `latency_ns`: from the end of a transfer until its KV can be used."""

    egress_bytes_per_s: int
    ingress_bytes_per_s: int
    latency_ns: int

    def rate_to(self, other: "Port") -> int:
        """Bytes per second of a transfer from here: the lesser bandwidth of the two ports."""
        return min(self.egress_bytes_per_s, other.ingress_bytes_per_s)

    def latency_to(self, other: "Port") -> int:
        """From the end of a transfer from here to its landing: the larger latency of the two ports, in ns."""
        return max(self.latency_ns, other.latency_ns)


class Booked(NamedTuple):
    """A transfer, which takes the egress of its source and the ingress of its destination."""

    source: int
    destination: int
    size: int  # bytes
    start_ns: int
    end_ns: int
    landed_ns: int


class Transfer(NamedTuple):
    """KV of a request that was booked to go from one replica to another: bytes by stage of the source."""

    request: int
    source: int
    destination: int
    stage_bytes: tuple[int, ...]


class Ports:
    """One port per replica; each way serves one transfer after the other, in the order of booking.

    Busy times and bytes, by replica, are those of transfers that have ended.
    """

    def __init__(self, ports: Seq[Port]) -> None:
        self._ports = ports
        self._egress_free_ns = [0] * len(ports)
        self._ingress_free_ns = [0] * len(ports)
        self.egress_busy_ns = [0] * len(ports)
        self.ingress_busy_ns = [0] * len(ports)
        self.egress_bytes = [0] * len(ports)
        self.ingress_bytes = [0] * len(ports)

    def book(self, source: int, destination: int, size: int, now_ns: int) -> Booked:
        """A transfer of `size` bytes that may start now: it takes at least 1 ns, and both ways stay booked."""
        out, into = self._ports[source], self._ports[destination]
        start = max(now_ns, self._egress_free_ns[source], self._ingress_free_ns[destination])
        end = start + moving_ns(size, out.rate_to(into))
        self._egress_free_ns[source] = self._ingress_free_ns[destination] = end
        return Booked(source, destination, size, start, end, end + out.latency_to(into))

    def sent(self, booked: Booked) -> None:
        """A transfer has ended: it counts."""
        took = booked.end_ns - booked.start_ns
        self.egress_busy_ns[booked.source] += took
        self.ingress_busy_ns[booked.destination] += took
        self.egress_bytes[booked.source] += booked.size
        self.ingress_bytes[booked.destination] += booked.size
