"""Flags of `run` that send its requests to an OpenTelemetry collector."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from cyclopts import Parameter

from stageline.cli.groups import TRACES
from stageline.cli.numbers import DECIMAL, WHOLE
from stageline.engine.fleet import Fleet
from stageline.errors import BadInput, UsageError
from stageline.plan.schema import Plan
from stageline.report.pools import RunPools
from stageline.report.spans.context import DEFAULT_RATIO, Sampler
from stageline.report.spans.otlp import OtlpExporter, SpanSender
from stageline.report.spans.recorder import TraceRecorder


@Parameter(name="*", group=TRACES)
@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFlags:
    """Where spans go."""

    otlp: Annotated[
        str | None, Parameter(help="Send request spans to this OTLP/HTTP collector, like http://localhost:4318.")
    ] = None
    trace_sample: Annotated[
        float | None, DECIMAL, Parameter(help=f"Fraction of requests to trace; default: {DEFAULT_RATIO}.")
    ] = None
    trace_anchor: Annotated[
        int | None, WHOLE, Parameter(help="Unix time in ns that stands for emulated time 0; default: now.")
    ] = None

    @contextmanager
    def recorder(self, plan: Plan | Fleet, seed: int) -> Iterator[TraceRecorder | None]:
        """What gathers spans during a run; on exit all have been sent. None without --otlp.

        Raises UsageError or BadInput, naming the flag.
        """
        if self.otlp is None:
            if self.trace_sample is not None or self.trace_anchor is not None:
                raise UsageError("--trace-sample and --trace-anchor are about spans: name a collector with --otlp")
            yield None
            return
        ratio = DEFAULT_RATIO if self.trace_sample is None else self.trace_sample
        if not 0 <= ratio <= 1:
            raise BadInput("--trace-sample", ratio, "not between 0 and 1", "give a share such as 0.1")
        anchor_ns = time.time_ns() if self.trace_anchor is None else self.trace_anchor
        if not 0 <= anchor_ns < 1 << 62:
            raise BadInput("--trace-anchor", anchor_ns, "not between 0 and 2**62", "give a Unix time in ns")
        exporter = OtlpExporter(self.otlp)
        from stageline.report.spans.maker import SpanMaker  # noqa: PLC0415  (needs the extra, as the exporter does)

        sampler = Sampler(f"{plan.digest()} {seed} {anchor_ns}", ratio)
        maker = SpanMaker(plan, sampler, lambda emulated_ns: anchor_ns + emulated_ns)
        sender = SpanSender(exporter, waits=True)
        visits = [len(own.visits) for own in RunPools(plan).plans]
        try:
            yield TraceRecorder(sampler, visits, lambda trace: sender.put(partial(maker.spans, trace)))
        finally:
            sender.close()
            lost = f"; {sender.lost:,} were lost: the collector did not take them" if sender.lost else ""
            sys.stderr.write(f"spans: {sender.sent:,} sent to {exporter.endpoint}{lost}\n")
