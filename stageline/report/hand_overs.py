"""Figures of KV that prefill replicas hand over to decode replicas: `hand_over` of summary.json, and of ports."""

from typing import NamedTuple

import msgspec

from stageline.engine.fleet import Fleet
from stageline.engine.served import port_of
from stageline.engine.types import RequestRecord
from stageline.report.distributions import ExactValues, Latency, latency
from stageline.report.pools import RunPools
from stageline.units import NS_PER_S


class HandOverSummary(msgspec.Struct, frozen=True, kw_only=True):
    """All hand-overs of a run. Times in emulated seconds."""

    requests: int  # whose KV landed
    sent_bytes: int
    transfer_s: Latency  # from the start of the first transfer to the landing of the last
    gap_s: Latency  # from the first token to the landing, where the prefill replica gives the first token


class PortFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The ports of one pool, all replicas together. Ratios are the shares of the window in which they were busy."""

    sent_bytes: int
    received_bytes: int
    egress_ratio: float
    ingress_ratio: float

    @property
    def busiest(self) -> float:
        """The larger ratio."""
        return max(self.egress_ratio, self.ingress_ratio)


class HandOverTimes(NamedTuple):
    """Emulated ns, as in HandOverSummary, of a request whose KV has landed. `gap_ns` None: no token came before."""

    transfer_ns: int
    gap_ns: int | None


def hand_over_times(record: RequestRecord) -> HandOverTimes | None:
    """None for a request whose KV has not gone anywhere."""
    moved, first = record.hand_over, record.first_token_ns
    if moved is None or moved.landed_ns is None or moved.start_ns is None:
        return None
    gap_ns = moved.landed_ns - first if first is not None and first <= moved.landed_ns else None
    return HandOverTimes(moved.landed_ns - moved.start_ns, gap_ns)


class HandOverTally:
    """Adds up the hand-overs of a run. A transfer holds both ports for its bytes over the lesser bandwidth."""

    def __init__(self, pools: RunPools) -> None:
        fleet = pools.source
        self._pools, self._fleet = pools, fleet if isinstance(fleet, Fleet) else None
        self.requests = self.sent_bytes = 0
        self._transfer, self._gap = ExactValues(), ExactValues()
        count = len(pools.pools)
        self._sent, self._received = [0] * count, [0] * count
        self._out_s, self._in_s = [0.0] * count, [0.0] * count

    def request(self, record: RequestRecord) -> None:
        """Adds one record."""
        moved = record.hand_over
        if moved is None or moved.decode_replica is None or record.replica is None or not moved.sent_bytes:
            return
        self._ports(record.replica, moved.decode_replica, moved.sent_bytes)
        times = hand_over_times(record)
        if times is None:
            return
        self.requests += 1
        self._transfer.add(times.transfer_ns)
        if times.gap_ns is not None:
            self._gap.add(times.gap_ns)

    def summary(self) -> HandOverSummary | None:
        """None for a fleet that hands nothing over."""
        if self._fleet is None or self._fleet.hand_over is None:
            return None
        return HandOverSummary(
            requests=self.requests,
            sent_bytes=self.sent_bytes,
            transfer_s=latency(self._transfer),
            gap_s=latency(self._gap),
        )

    def ports(self, pool: int, window_ns: int) -> PortFigures | None:
        """Of a pool, by its place in the fleet; None for a fleet that hands nothing over."""
        if self._fleet is None or self._fleet.hand_over is None:
            return None
        whole_s = window_ns / NS_PER_S * len(self._pools.pools[pool].replicas)
        return PortFigures(
            sent_bytes=self._sent[pool],
            received_bytes=self._received[pool],
            egress_ratio=self._out_s[pool] / whole_s if whole_s else 0.0,
            ingress_ratio=self._in_s[pool] / whole_s if whole_s else 0.0,
        )

    def _ports(self, source: int, target: int, size_bytes: int) -> None:
        assert self._fleet is not None
        assert self._fleet.hand_over is not None
        out, into = self._pools.place(source), self._pools.place(target)
        own, other = (port_of(self._fleet.pools[place], self._fleet.hand_over) for place in (out, into))
        rate = own.rate_to(other)
        self.sent_bytes += size_bytes
        self._sent[out] += size_bytes
        self._received[into] += size_bytes
        self._out_s[out] += size_bytes / rate
        self._in_s[into] += size_bytes / rate
