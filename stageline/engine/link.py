"""One link: FIFO, serialisation, latency, jitter (rule 2). The sender computes the arrival."""

from stageline.engine.rng import STREAM_JITTER, draw_at, stream_key
from stageline.engine.types import NEVER
from stageline.plan.schema import LinkPlan

NS_PER_S = 1_000_000_000


class Link:
    """One per replica and visit boundary. Link v enters visit v; the last one returns to the router."""

    __slots__ = (
        "_tokens",
        "_took_ns",
        "bytes_per_s",
        "bytes_per_token",
        "free_ns",
        "index",
        "jitter_key",
        "jitter_ns",
        "last_arrival_ns",
        "latency_ns",
        "min_serialisation_ns",
    )  # fmt: skip

    def __init__(self, plan: LinkPlan, index: int, replica: int, seed: int, *, is_return: bool = False) -> None:
        self.index = index
        self.latency_ns = plan.latency_ns
        self.bytes_per_s = plan.bytes_per_s
        self.bytes_per_token = plan.bytes_per_token
        self.jitter_ns = plan.jitter_ns
        self.jitter_key = stream_key(seed, STREAM_JITTER, replica, index)
        # The return link may carry a chunk that samples nothing: 0 bytes. All others carry at least one token.
        self.min_serialisation_ns = 0 if is_return else self.serialisation_ns(1)
        self._tokens, self._took_ns = 0, 0  # of what was sent last: most microbatches have as many tokens
        self.free_ns = 0
        self.last_arrival_ns = 0

    def serialisation_ns(self, tokens: int) -> int:
        """Time that `tokens` occupy the link, rounded up."""
        return -(-tokens * self.bytes_per_token * NS_PER_S // self.bytes_per_s)

    def send(self, end_ns: int, tokens: int, number: int) -> int:
        """Send a microbatch whose service ended at `end_ns`; returns its arrival at the far end."""
        if tokens != self._tokens:
            self._tokens, self._took_ns = tokens, self.serialisation_ns(tokens)
        free = self.free_ns if self.free_ns > end_ns else end_ns
        self.free_ns = free = free + self._took_ns
        arrival = free + self.latency_ns
        if self.jitter_ns:
            arrival += draw_at(self.jitter_key, number) % (self.jitter_ns + 1)
            arrival = max(arrival, self.last_arrival_ns)
        self.last_arrival_ns = arrival
        return arrival

    def promise_ns(self, end_ns: int) -> int:
        """Lower bound on the arrival of anything whose service ends at `end_ns` or later (the link's lookahead)."""
        if end_ns >= NEVER:
            return NEVER
        return max(self.last_arrival_ns, max(end_ns, self.free_ns) + self.min_serialisation_ns + self.latency_ns)
