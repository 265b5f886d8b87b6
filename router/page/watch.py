"""What the page shows of the cluster, taken at most once a second, however many look."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from stageline.runtime.cluster_view import ClusterSamples, View, cluster_samples, view_between
from stageline.runtime.deployment import Deployment
from stageline.v1 import router_pb2
from stageline.wire.router_client import status_of

FRESH_S = 0.9  # a view that is younger is shown again
PAUSE_S = 10.0  # figures since the last look mean nothing when that is longer ago


class ClusterWatch:
    """`state` asks for the router's status with all metrics."""

    def __init__(self, deployment: Deployment, state: Callable[[], Awaitable[router_pb2.StatusReply]]) -> None:
        self._deployment, self._state = deployment, state
        self._before: ClusterSamples | None = None
        self._view = b""
        self._taken_s = float("-inf")
        self._lock = asyncio.Lock()

    async def view(self, address: str) -> bytes:
        """The view as JSON. The metrics of many stages take long to read, so a thread does that."""
        loop = asyncio.get_running_loop()
        async with self._lock:
            if loop.time() - self._taken_s >= FRESH_S:
                reply = await self._state()
                now_s = loop.time()
                before = self._before if now_s - self._taken_s < PAUSE_S else None
                self._view, self._before = await asyncio.to_thread(self._read, address, reply, now_s, before)
                self._taken_s = now_s
            return self._view

    def _read(
        self, address: str, reply: router_pb2.StatusReply, now_s: float, before: ClusterSamples | None
    ) -> tuple[bytes, ClusterSamples]:
        now = cluster_samples(status_of(reply), now_s)
        view: View = view_between(address, self._deployment, now, before)
        return msgspec.json.encode(view), now
