"""Spans of live requests: a recorder per session, one sender for all of them."""

import asyncio
from functools import partial

from stageline.report.spans.context import Sampler
from stageline.report.spans.otlp import OtlpExporter, SpanSender
from stageline.report.spans.recorder import RequestTrace, TraceRecorder
from stageline.runtime.deployment import Deployment
from stageline.sync.realtime import LiveClock


class LiveTraces:
    """Traces for `--otlp`; a caller's sampled flag overrides `ratio`. Raises UsageError for an unusable endpoint."""

    def __init__(self, deployment: Deployment, endpoint: str, ratio: float) -> None:
        self._deployment, self._ratio = deployment, ratio
        self._sender = SpanSender(OtlpExporter(endpoint), waits=False)

    def recorder(self, session: str, clock: LiveClock) -> TraceRecorder:
        """The recorder of one session: emulated times become the wall times at which they were due."""
        from stageline.report.spans.maker import SpanMaker  # noqa: PLC0415  (needs the extra)

        sampler = Sampler(session, self._ratio)
        maker = SpanMaker(self._deployment.document, sampler, clock.unix_ns)

        def ended(trace: RequestTrace) -> None:
            self._sender.put(partial(maker.spans, trace))

        return TraceRecorder(sampler, [route.visits for route in self._deployment.fleet.routes], ended)

    async def close(self) -> None:
        """Send what is left; a collector that does not answer is tried once."""
        await asyncio.to_thread(self._sender.close)
