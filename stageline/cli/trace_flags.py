"""Flags of `run` that send its requests to an OpenTelemetry collector."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from cyclopts import Group, Parameter

from stageline.errors import BadInput, UsageError
from stageline.plan.schema import Plan
from stageline.report.spans.context import DEFAULT_RATIO, Sampler
from stageline.report.spans.otlp import OtlpExporter, SpanSender
from stageline.report.spans.recorder import TraceRecorder

_GROUP = Group.create_ordered("Traces")


@Parameter(name="*", group=_GROUP)
@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFlags:
    """Where spans go."""

    otlp: Annotated[
        str | None, Parameter(help="send request spans to a collector by OTLP/HTTP, like http://localhost:4318")
    ] = None
    trace_sample: Annotated[float | None, Parameter(help=f"share of requests traced, {DEFAULT_RATIO} by default")] = (
        None
    )
    trace_anchor: Annotated[
        int | None, Parameter(help="Unix time in ns at which emulated time 0 is drawn; now by default")
    ] = None

    @contextmanager
    def recorder(self, plan: Plan, seed: int) -> Iterator[TraceRecorder | None]:
        """What gathers spans while the run goes on; at its end all have been sent. None without --otlp.

        Raises UsageError or BadInput, naming the flag.
        """
        if self.otlp is None:
            if self.trace_sample is not None or self.trace_anchor is not None:
                raise UsageError("--trace-sample and --trace-anchor are about spans: say with --otlp where they go")
            yield None
            return
        ratio = DEFAULT_RATIO if self.trace_sample is None else self.trace_sample
        if not 0 <= ratio <= 1:
            raise BadInput("--trace-sample", ratio, "not a share", "give a number from 0 to 1")
        anchor_ns = time.time_ns() if self.trace_anchor is None else self.trace_anchor
        if not 0 <= anchor_ns < 1 << 62:
            raise BadInput("--trace-anchor", anchor_ns, "not a Unix time in ns", "give a number from 0 to 2**62")
        exporter = OtlpExporter(self.otlp)
        from stageline.report.spans.maker import SpanMaker  # noqa: PLC0415  (needs the extra, as the exporter does)

        sampler = Sampler(f"{plan.digest()} {seed} {anchor_ns}", ratio)
        maker = SpanMaker(plan, sampler, lambda emulated_ns: anchor_ns + emulated_ns)
        sender = SpanSender(exporter, waits=True)
        try:
            yield TraceRecorder(sampler, len(plan.visits), lambda trace: sender.put(partial(maker.spans, trace)))
        finally:
            sender.close()
            lost = f"; {sender.lost:,} were lost, the collector did not take them" if sender.lost else ""
            sys.stderr.write(f"spans: {sender.sent:,} sent to {exporter.endpoint}{lost}\n")
