"""The rules of one stage (rules 1, 6, 7): serve in order of arrival, keep the KV ledger, explain idle gaps."""

from stageline.engine.attribution import Lateness, add_gap, split_gap
from stageline.engine.causes import GAP_CAUSES, RECORDED
from stageline.engine.ledger import Ledger
from stageline.engine.microbatch import Item, Microbatch, Trail
from stageline.engine.rng import STREAM_EXPERTS, draw_at, stream_key
from stageline.engine.route import Route
from stageline.engine.types import StageObserver, StageRecord
from stageline.errors import LawBroken


class Stage:
    """Call `serve` in the order of arrivals; equal arrivals: later visit first, then microbatch number."""

    def __init__(
        self,
        route: Route,
        index: int,
        replica: int,
        seed: int,
        observer: StageObserver | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        """`ledger`: one that its owner keeps up to date; by default the stage keeps its own at its first visit."""
        self.route, self.index, self.replica = route, index, replica
        self.ledger = ledger or Ledger(route.plan.stages[index])
        self.first_visit = -1 if ledger else min(route.inputs[index], default=0)  # where KV changes are applied
        self.free_ns = 0
        self.busy_ns = 0
        self.started_ns: int | None = None
        self.services = 0
        self.gap_ns = [0] * len(GAP_CAUSES)
        self._observer = observer
        self._least_ns = route.min_service_ns
        self.lateness = Lateness(route.inputs[index])
        self._draw_keys = {v: stream_key(seed, STREAM_EXPERTS, replica, v) for v in route.inputs[index]}

    def serve(self, visit: int, item: Item) -> Trail:
        """Serve one microbatch from max(free, arrival) on; returns what it passes on, the end of its service in it."""
        return self.occupy(visit, item, self.service_ns(visit, item.microbatch))

    def draw_key(self, visit: int) -> int:
        """Key of the visit's stream of expert draws."""
        return self._draw_keys[visit]

    def service_ns(self, visit: int, microbatch: Microbatch) -> int:
        """Service time of the microbatch: a pure function of its totals and, with expert imbalance, of a draw."""
        model = self.route.models[visit]
        draw = draw_at(self._draw_keys[visit], microbatch.number) if model.uses_draw else 0
        return model.service_ns(microbatch.totals, draw)

    def occupy(self, visit: int, item: Item, service_ns: int) -> Trail:
        """As `serve`, with a given service time. Raises LawBroken below the plan's minimum."""
        microbatch, start, free = item.microbatch, item.arrival_ns, self.free_ns
        if service_ns < self._least_ns[visit]:
            raise LawBroken(
                f"visit {visit} took {service_ns} ns, less than the plan's minimum of "
                f"{self._least_ns[visit]} ns, for {microbatch.totals}"
            )
        gap = start - free
        if self.started_ns is None:
            self.started_ns = start
        elif gap > 0:
            self._explain(visit, item)
        else:
            start = free
        end = start + service_ns
        passed = self.lateness.pass_on(visit, item, gap, service_ns, end)
        self.busy_ns += service_ns
        self.free_ns = end
        self.services += 1
        observer = self._observer
        if (microbatch.releases or microbatch.grants) and visit == self.first_visit:
            self.ledger.apply(microbatch.releases, microbatch.grants)
            if observer is not None:
                observer.kv(self.replica, self.index, start, self.ledger.used_bytes)
        if observer is not None:
            observer.served(self.replica, self.index, visit, microbatch.number, item.arrival_ns, start, end)
        return passed

    def _explain(self, visit: int, item: Item) -> None:
        late_ns = self.lateness.explain(visit, item)
        add_gap(self.gap_ns, self.free_ns, item, late_ns)
        if self._observer is not None:
            parts = split_gap(self.free_ns, item, late_ns)
            self._observer.gap(self.replica, self.index, self.free_ns, dict(zip(GAP_CAUSES, parts, strict=True)))

    def record(self, window_start_ns: int, window_end_ns: int) -> StageRecord:
        """How the window was spent. Raises LawBroken when busy time and causes do not sum to it (L6)."""
        window = window_end_ns - window_start_ns
        idle: dict[str, int] = dict.fromkeys(RECORDED, 0)
        idle.update((cause, ns) for cause, ns in zip(GAP_CAUSES, self.gap_ns, strict=True) if ns or cause in idle)
        if self.started_ns is None:
            idle["fill"] = window
        else:
            idle["fill"] = self.started_ns - window_start_ns
            idle["drain"] = window_end_ns - self.free_ns
        if self.busy_ns + sum(idle.values()) != window or min(idle.values()) < 0:
            raise LawBroken(f"L6: stage {self.index}: busy {self.busy_ns} + idle {idle} is not {window} ns")
        return StageRecord(
            replica=self.replica, stage=self.index, window_ns=window, busy_ns=self.busy_ns, idle_ns=idle,
            kv_peak_bytes=self.ledger.peak_bytes, kv_budget_bytes=self.ledger.budget_bytes,
            microbatches=self.services, visits=len(self.route.inputs[self.index]),
        )  # fmt: skip
