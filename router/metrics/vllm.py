"""The serving metrics under vLLM's names, in emulated seconds: an Observer of runs and live sessions."""

from collections import ChainMap, Counter
from collections.abc import Iterable, Mapping
from typing import Protocol

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from router.metrics.hand_overs import ways
from stageline.engine.microbatch import Item
from stageline.engine.replica import Replica
from stageline.engine.router import Router
from stageline.engine.sequence import Sequence
from stageline.engine.served import ServedFleet, ServedPool
from stageline.engine.types import Observer, RequestRecord, SpeculationStats
from stageline.report.hand_overs import HandOverTimes, hand_over_times
from stageline.report.request_times import times_of
from stageline.runtime import metric_names as own
from stageline.runtime import vllm_names as vllm
from stageline.runtime.metrics import Buckets, MetricSpec
from stageline.units import NS_PER_S

_REASONS = {"cancelled": "abort", "failed": "error", "incomplete": "error", "refused": "error"}
_COUNTERS = (vllm.PROMPT_TOKENS, vllm.GENERATION_TOKENS, vllm.PREEMPTIONS, vllm.CACHE_QUERIES, vllm.CACHE_HITS)
_DRAFT_COUNTERS = (vllm.DRAFTS, vllm.DRAFT_TOKENS, vllm.ACCEPTED_TOKENS)
_HISTOGRAMS = tuple(spec for spec in vllm.DROP_IN if spec.kind == "histogram")
_HAND_OVER = (own.HAND_OVER, own.KV_TRANSFER)
_WAITING = 256  # different values that wait for the histograms


class Watch(Observer, Protocol):
    """An Observer that knows which router it watches."""

    def begin(self, router: Router) -> None:
        """Another run or live session begins."""
        ...

    def resumed(self, router: Router, kept: Mapping[int, Sequence]) -> None:
        """The session goes on with another router, which has been through all that was. `kept`: sequences of tokens
        that come first, though they may have ended there.
        """
        ...

    def dispatched(self, replica: int, items: Iterable[Item]) -> None:
        """Microbatches leave the router."""
        ...

    def lost(self, unseen: int) -> None:
        """The run or session broke off; `unseen` requests had not arrived at the router yet."""
        ...


class ReplicaSeries:
    """What one replica has counted since the server started."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter(dict.fromkeys(("stop", "length", "abort", "error"), 0))
        specs = (*_HISTOGRAMS, own.TTFT, own.ITL, *_HAND_OVER)
        self.histograms: dict[str, Buckets] = {spec.name: spec.buckets() for spec in specs}
        self.itl = (self.histograms[vllm.ITL.name], self.histograms[own.ITL.name])
        self.ttft = (self.histograms[vllm.TTFT.name], self.histograms[own.TTFT.name])
        self.tokens = 0
        self.drafts = SpeculationStats()  # of runs and sessions that are over
        # Not in the histograms yet: time between tokens and tokens of a step, with how often each was seen.
        self._gaps: dict[int, int] = {}
        self._steps: dict[int, int] = {}

    def gap(self, gap_ns: int) -> None:
        """A token came that long after the one before it. Those of a microbatch share their gap: one entry for all."""
        gaps = self._gaps
        gaps[gap_ns] = gaps.get(gap_ns, 0) + 1
        if len(gaps) >= _WAITING:
            self.settle()

    def step(self, tokens: int) -> None:
        """A microbatch of that many tokens left the router."""
        steps = self._steps
        steps[tokens] = steps.get(tokens, 0) + 1
        if len(steps) >= _WAITING:
            self.settle()

    def handed_over(self, times: HandOverTimes) -> None:
        """A request has ended whose KV landed here."""
        self.histograms[own.KV_TRANSFER.name].observe(times.transfer_ns / NS_PER_S)
        if times.gap_ns is not None:
            self.histograms[own.HAND_OVER.name].observe(times.gap_ns / NS_PER_S)

    def settle(self) -> None:
        """Bring the histograms up to date."""
        for gap_ns, times in self._gaps.items():
            for buckets in self.itl:
                buckets.observe(gap_ns / NS_PER_S, times)
        self._gaps.clear()
        for tokens, times in self._steps.items():
            self.histograms[vllm.STEP_TOKENS.name].observe(tokens, times)
        self._steps.clear()


class ServingMetrics(Collector):
    """Watches the run or live session under way. Counters add up over all of them."""

    def __init__(self, fleet: ServedFleet) -> None:
        self._pools = fleet.pool_of
        self._series = [ReplicaSeries() for _ in self._pools]
        self._labels = [(pool.route.plan.model, str(r), pool.name) for r, pool in enumerate(self._pools)]
        self._targets = [replica for replica, direction in ways(fleet) if direction == "ingress"]
        self._replicas: list[Replica] = []
        self._live: Mapping[int, Sequence] = {}
        self._most: dict[int, int] = {}  # largest output that a request may have, by index, from its first token on

    # -- what happens

    def begin(self, router: Router) -> None:
        """See Watch."""
        for series, stats in zip(self._series, self._drafts(), strict=True):
            series.drafts = stats
        self._live, self._replicas = router.sequences, router.replicas
        self._most.clear()

    def resumed(self, router: Router, kept: Mapping[int, Sequence]) -> None:
        """See Watch."""
        self._live = ChainMap(dict(kept), router.sequences) if kept else router.sequences
        self._replicas = router.replicas

    def lost(self, unseen: int) -> None:
        """See Watch."""
        for sequence in self._live.values():
            self._series[sequence.replica].reasons["error"] += 1
        self._series[0].reasons["error"] += unseen
        for series, stats in zip(self._series, self._drafts(), strict=True):
            series.drafts = stats
        self._live, self._replicas = {}, []
        self._most.clear()

    def dispatched(self, replica: int, items: Iterable[Item]) -> None:
        """See Watch."""
        step = self._series[replica].step
        for item in items:
            totals = item.microbatch.totals
            step(totals.decode_tokens + totals.prefill_tokens)

    def token(self, index: int, now_ns: int, since_ns: int | None) -> None:
        """See Observer."""
        sequence = self._live[index]
        series = self._series[sequence.replica]
        series.tokens += 1
        if since_ns is not None:
            series.gap(now_ns - since_ns)
            return
        request = sequence.request
        series.counts[vllm.PROMPT_TOKENS.name] += request.prompt_tokens
        self._most[index] = request.max_output_tokens
        for buckets in series.ttft:
            buckets.observe((now_ns - request.arrival_ns) / NS_PER_S)

    def request(self, record: RequestRecord) -> None:
        """See Observer."""
        most = self._most.pop(record.index, 0)
        series = self._series[record.replica or 0]
        moved = record.hand_over
        times = hand_over_times(record)
        target = series
        if times is not None and moved is not None and moved.decode_replica is not None:
            target = self._series[moved.decode_replica]
            target.handed_over(times)
        target.counts[vllm.PREEMPTIONS.name] += record.preemptions
        if record.cached_tokens is not None:
            series.counts[vllm.CACHE_QUERIES.name] += record.prompt_tokens
            series.counts[vllm.CACHE_HITS.name] += record.cached_tokens
        if record.outcome == "finished":
            series.reasons["length" if record.output_tokens >= most else "stop"] += 1
            self._finished(series, record, most)
        else:
            series.reasons[_REASONS[record.outcome]] += 1

    @staticmethod
    def _finished(series: ReplicaSeries, record: RequestRecord, most: int) -> None:
        times = times_of(record)
        if times is None:
            return
        seconds = {
            vllm.E2E: times.e2e_ns,
            vllm.QUEUE: times.queue_ns,
            vllm.INFERENCE: times.e2e_ns - times.queue_ns,
            vllm.PREFILL: times.ttft_ns - times.queue_ns,
            vllm.DECODE: times.e2e_ns - times.ttft_ns,
        }
        for spec, ns in seconds.items():
            series.histograms[spec.name].observe(ns / NS_PER_S)
        if times.tpot_ns is not None:
            series.histograms[vllm.TPOT.name].observe(times.tpot_ns / NS_PER_S)
        tokens = ((vllm.REQUEST_PROMPT, record.prompt_tokens), (vllm.REQUEST_OUTPUT, record.output_tokens))
        for spec, count in (
            *tokens,
            (vllm.MAX_OUTPUT, record.output_tokens),
            (vllm.PARAM_MAX, most),
            (vllm.PARAM_N, 1),
        ):
            series.histograms[spec.name].observe(count)

    # -- what is scraped

    def collect(self) -> Iterable[Metric]:
        """The families; see docs/metrics.md."""
        replicas: list[Replica | None] = [*self._replicas] or [None] * len(self._series)
        yield vllm.RUNNING.family(self._each(len(r.running) if r else 0 for r in replicas))
        yield vllm.WAITING.family(self._each(len(r.waiting) if r else 0 for r in replicas))
        yield vllm.KV_USAGE.family(self._each(r.kv_in_use() / 2**40 if r else 0 for r in replicas))
        places = zip(self._labels, self._pools, strict=True)
        yield vllm.CACHE_CONFIG.family(((*labels, *_cache_config(pool)), 1) for labels, pool in places)
        yield vllm.LORA.family(((*labels, "0", "", ""), 0) for labels in self._labels)
        for series in self._series:
            series.settle()
            series.counts[vllm.GENERATION_TOKENS.name] = series.tokens
        for spec in _COUNTERS:
            yield spec.family(self._each(series.counts[spec.name] for series in self._series))
        drafts = [(s.steps, s.drafted_tokens, s.accepted_tokens) for s in self._drafts()]
        for spec, values in zip(_DRAFT_COUNTERS, zip(*drafts, strict=True), strict=True):
            yield spec.family(self._each(values))
        pairs = zip(self._labels, self._series, strict=True)
        yield vllm.SUCCESS.family(((*labels, reason), n) for labels, e in pairs for reason, n in e.reasons.items())
        for spec in _HISTOGRAMS:
            yield spec.histogram(self._buckets(spec, self._labels))
        names = [labels[1:] for labels in self._labels]
        for spec in (own.TTFT, own.ITL):
            yield spec.histogram(self._buckets(spec, names))
        for spec in _HAND_OVER:
            yield spec.histogram((names[r], self._series[r].histograms[spec.name]) for r in self._targets)

    def _drafts(self) -> list[SpeculationStats]:
        """By replica, with those of what is under way."""
        now = [r.speculation.stats() if r.speculation else SpeculationStats() for r in self._replicas]
        past = [series.drafts for series in self._series]
        return [a + b for a, b in zip(past, now or [SpeculationStats()] * len(past), strict=True)]

    def _each(self, values: Iterable[float]) -> Iterable[tuple[tuple[str, ...], float]]:
        return zip(self._labels, values, strict=True)

    def _buckets(
        self, spec: MetricSpec, labels: Iterable[tuple[str, ...]]
    ) -> Iterable[tuple[tuple[str, ...], Buckets]]:
        return zip(labels, (series.histograms[spec.name] for series in self._series), strict=True)


def _cache_config(pool: ServedPool) -> tuple[str, str]:
    """Tokens of a KV block, and the blocks of the stage that has fewest."""
    plan = pool.route.plan
    blocks = min((s.kv_budget_bytes // s.kv_block_bytes for s in plan.stages if s.kv_block_bytes), default=0)
    return str(plan.block_tokens), str(blocks)
