"""What a stage server exports to Prometheus: its machine's own figures, read when they are scraped."""

import time
from collections import Counter
from collections.abc import Iterable

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

import stageline
from stage_server.session import StageSession
from stageline.engine.causes import CAUSES, GAP_CAUSES
from stageline.runtime import metric_names as names
from stageline.units import NS_PER_S

Counts = Counter[tuple[str, ...]]
_COUNTERS = (
    names.STAGE_MICROBATCHES,
    names.STAGE_FRAMES,
    names.STAGE_PROMISE_FRAMES,
    names.STAGE_FRAME_MICROBATCHES,
    names.STAGE_ASKS,
)


class StageCollector(Collector):
    """Counters add up over sessions. Between sessions the server is idle: wall time, as `empty`, or as `fault`
    after a live session that broke off.
    """

    def __init__(self, stage: int = -1, replica: int = -1, pool: str = "") -> None:
        self._labels = (str(max(stage, 0)), str(max(replica, 0)), pool)
        self._session: StageSession | None = None
        self._idle_since_ns = time.monotonic_ns()
        self._idle_cause = "empty"
        self._past: Counts = Counter()

    def on_session(self, session: StageSession | None) -> None:
        """A session begins, or (None) the one that was open has ended."""
        now = time.monotonic_ns()
        if session is None:
            self._past += self._current()
            ended = self._session
            self._idle_cause = "fault" if ended and ended.live and ended.shell.error else "empty"
            self._session, self._idle_since_ns = None, now
        else:
            self._past["idle", self._idle_cause] += now - self._idle_since_ns
            self._session = session
            self._labels = (str(session.index), str(session.replica), session.pool)

    def collect(self) -> Iterable[Metric]:
        """The families; see docs/metrics.md."""
        values, place, session = self._past + self._current(), self._labels, self._session
        machine = session.machine if session else None
        stage = machine.stage if machine else None
        yield names.STAGE_BUSY.family([(place, values["busy",] / NS_PER_S)])
        yield names.STAGE_IDLE.family(((*place, cause), values["idle", cause] / NS_PER_S) for cause in CAUSES)
        links = sorted(key for key in values if key[0] == "link")
        yield names.LINK_PAYLOAD.family(((*place, key[1]), values[key]) for key in links)
        yield names.KV_STREAMED.family(((*place, way), values["kv", way]) for way in ("sent", "received"))
        for spec in _COUNTERS:
            yield spec.family([(place, values[spec.name,])])
        gauges = (
            (names.STAGE_KV_USED, machine.kv_used_bytes if machine else 0),
            (names.STAGE_KV_BUDGET, stage.ledger.budget_bytes if stage else 0),
            (names.STAGE_CLOCK, stage.free_ns / NS_PER_S if stage else 0),
            (names.SESSION_OPEN, int(session is not None)),
        )
        for spec, value in gauges:
            yield spec.family([(place, value)])
        yield names.BUILD_INFO.family([((stageline.__version__,), 1)])

    def _current(self) -> Counts:
        """The figures of the open session, or of the idle time since the last one."""
        session = self._session
        if session is None:
            return Counter({("idle", self._idle_cause): time.monotonic_ns() - self._idle_since_ns})
        return counts_of(session)


def counts_of(session: StageSession) -> Counts:
    """The counters of one session. Fill and drain are known once its final account was taken."""
    stage, decoders = session.machine.stage, [link.decoder for link in session.in_links.values()]
    idle = session.final_record.idle_ns if session.final_record else dict(zip(GAP_CAUSES, stage.gap_ns, strict=True))
    values: Counts = Counter({("idle", cause): ns for cause, ns in idle.items()})
    values["busy",] = stage.busy_ns
    values[names.STAGE_MICROBATCHES.name,] = stage.services
    values[names.STAGE_FRAMES.name,] = sum(d.frames for d in decoders)
    values[names.STAGE_PROMISE_FRAMES.name,] = sum(d.promise_frames for d in decoders)
    values[names.STAGE_FRAME_MICROBATCHES.name,] = sum(d.items for d in decoders)
    values[names.STAGE_ASKS.name,] = sum(link.asks for link in session.in_links.values())
    values["kv", "sent"], values["kv", "received"] = session.kv.sent_bytes, session.kv.landed_bytes
    for number, link in session.out_links.items():
        values["link", str(number)] = link.encoder.payload_bytes
    return values
