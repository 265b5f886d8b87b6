"""Rule 2: a link is a FIFO wire with serialisation, latency and jitter."""

from dataclasses import dataclass, field

from stageline.engine.rng import STREAM_JITTER, draw
from stageline.plan.schema import LinkPlan

NS_PER_S = 10**9


def serialisation_ns(payload_bytes: int, bytes_per_s: int) -> int:
    """ceil(bytes * 1e9 / bandwidth), in integers."""
    whole, rest = divmod(payload_bytes * NS_PER_S, bytes_per_s)
    return whole + (1 if rest else 0)


@dataclass(slots=True)
class Link:
    """The wire that enters visit `visit` of one replica (visit = number of visits: back to the router)."""

    plan: LinkPlan
    seed: int
    replica: int
    visit: int
    free_ns: int = 0
    last_arrival_ns: int = 0
    log: list[tuple[int, int, int]] = field(default_factory=list)  # depart, free afterwards, arrival

    def send(self, end_ns: int, number: int, tokens: int) -> int:
        """Arrival of microbatch `number`, ready at `end_ns`; `tokens` are new ones, or sampled ones on the way back."""
        depart_ns = max(end_ns, self.free_ns)
        self.free_ns = depart_ns + serialisation_ns(tokens * self.plan.bytes_per_token, self.plan.bytes_per_s)
        jitter_ns = draw(self.seed, STREAM_JITTER, self.replica, self.visit, number) % (self.plan.jitter_ns + 1)
        self.last_arrival_ns = max(self.last_arrival_ns, self.free_ns + self.plan.latency_ns + jitter_ns)
        self.log.append((depart_ns, self.free_ns, self.last_arrival_ns))
        return self.last_arrival_ns
