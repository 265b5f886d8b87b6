"""One load run: probes the server, sends the workload, summarizes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from fractions import Fraction

import msgspec

from stageline import __version__
from stageline.errors import RunFailed, UsageError
from stageline.load.body import Bodies
from stageline.load.clock import Clock
from stageline.load.conversation import ConversationKind, Prompts
from stageline.load.driver import Driver, LoadProgress
from stageline.load.http import HttpTarget, open_http
from stageline.load.options import LoadOptions
from stageline.load.probe import ServerFacts, probe
from stageline.load.ramp import Ramp, Step
from stageline.load.recorder import LoadRecorder
from stageline.load.remarks import remarks_of
from stageline.load.reply import Target
from stageline.load.retry import Retry
from stageline.load.schedule import Schedule
from stageline.load.summary import LoadFacts, LoadSummary, StepFigures, clock_figures, counted, slo_result
from stageline.load.time_map import TimeMap
from stageline.report.distributions import latency
from stageline.workload import DescribedWorkload

ONE_STEP = (Step(Fraction(1), None),)
OnProgress = Callable[[LoadProgress], None]


class LoadResult(msgspec.Struct, frozen=True):
    """A finished run. `interrupted`: the user ended it early."""

    summary: LoadSummary
    recorder: LoadRecorder
    interrupted: bool


async def run_load(options: LoadOptions, workload: DescribedWorkload, clock: Clock, watch: OnProgress) -> LoadResult:
    """Sends a workload. Raises Unavailable, Busy, UsageError, BadInput, or RunFailed when no call counts.

    When it is cancelled, it ends all calls and returns what it has measured.
    """
    if workload.reactive and options.steps:
        raise UsageError("--ramp does not apply to a closed loop, whose users set the rate; change users= or think=")
    async with _target(options, clock) as (target, facts):
        on_wall = options.wall or facts.dilation is None
        steps = options.steps or ONE_STEP
        with LoadRecorder(
            len(steps), slo=options.slo, dilation=facts.dilation, slo_on_wall=on_wall, directory=options.directory
        ) as recorder:
            prompts = Prompts(_kind(options), options.seed, workload.hash_block_tokens, facts.template)
            factor = Fraction(1) if on_wall or facts.dilation is None else facts.dilation
            driver = Driver(
                Schedule(workload, Ramp(steps), warmup=options.warmup, duration_ns=options.duration_ns),
                target,
                clock,
                TimeMap(factor, clock.now_ns()),
                prompts,
                recorder,
                turns=options.turns,
                retry=Retry(options.retries, options.seed),
            )
            watch(driver.progress)
            complete = await _drive(driver)
            recorder.finish()
    summary = summarize_load(options, workload, facts, recorder, complete=complete)
    return LoadResult(summary, recorder, not complete)


async def _drive(driver: Driver) -> bool:
    """Runs to the end; False if cancelled."""
    try:
        await driver.run()
    except asyncio.CancelledError:
        return False
    return True


def _kind(options: LoadOptions) -> ConversationKind:
    if options.grpc_address:
        return "ids"
    return "chat" if options.endpoint == "chat" else options.prompts


@asynccontextmanager
async def _target(options: LoadOptions, clock: Clock) -> AsyncIterator[tuple[Target, ServerFacts]]:
    """Probes the server and opens the target for its calls."""
    if options.grpc_address:
        from stageline.load.grpc import GrpcTarget, probe_grpc  # noqa: PLC0415  (gRPC is slow to load)
        from stageline.wire.channels import Dialer  # noqa: PLC0415
        from stageline.wire.generate import GenerateClient  # noqa: PLC0415

        dialer = Dialer(options.tls, api_key=options.api_key)
        async with GenerateClient(options.grpc_address, dialer) as client:
            facts = await probe_grpc(client)
            there = GrpcTarget(
                client, clock, model=facts.model, connections=options.connections, timeout_s=options.timeout_s
            )
            yield there, facts
        return
    chat = options.endpoint == "chat"
    Bodies("", chat=chat, extra=options.extra_body)  # raises BadInput before anything is sent
    async with open_http(api_key=options.api_key, tls=options.tls.client_context()) as session:
        facts = await probe(session, options.url, options.model, chat=chat)
        stageline = facts.dilation is not None
        target = HttpTarget(
            session,
            options.url + ("/v1/chat/completions" if chat else "/v1/completions"),
            Bodies(
                facts.model, chat=chat, ignore_eos=options.ignore_eos, extra=options.extra_body, stageline=stageline
            ),
            clock,
            connections=options.connections,
            timeout_s=options.timeout_s,
            stageline=stageline,
        )
        yield target, facts


def summarize_load(
    options: LoadOptions, workload: DescribedWorkload, facts: ServerFacts, recorder: LoadRecorder, *, complete: bool
) -> LoadSummary:
    """The figures of a run. Raises RunFailed for a complete run in which every call was warm-up."""
    tally = recorder.total.tally
    if complete and not tally.calls:
        raise RunFailed(f"all {recorder.warmup_calls} calls were warm-up: send more, or lower --warmup")
    wall, emulated = clock_figures(tally, recorder.total.gaps, recorder.total.emulated_gaps)
    on_wall = options.wall or emulated is None
    judged_s = wall.duration_s if emulated is None or on_wall else emulated.duration_s
    described = LoadFacts(
        version=__version__,
        command=options.command,
        url=options.url,
        endpoint="grpc" if options.grpc_address else options.endpoint,
        model=facts.model,
        workload=workload.description,
        workload_rows=msgspec.structs.asdict(workload.counts),
        seed=options.seed,
        clock="wall" if on_wall else "emulated",
        dilation=None if facts.dilation is None else float(facts.dilation),
        turns=options.turns.count,
        connections=options.connections,
    )
    return LoadSummary(
        **msgspec.structs.asdict(described),
        complete=complete,
        warmup_calls=recorder.warmup_calls,
        calls=counted(tally),
        reasons=dict(tally.reasons.most_common()),
        prompt_tokens=tally.prompt_tokens,
        output_tokens=tally.output_tokens,
        chunks=tally.chunks,
        retried_calls=tally.retried_calls,
        retries=tally.retries,
        other_prompt_lengths=tally.other_prompts,
        other_output_lengths=tally.other_outputs,
        send_lag_s=latency(tally.lag),
        wall=wall,
        emulated=emulated,
        steps=_steps(options.steps, recorder),
        slo=None if options.slo is None else slo_result(options.slo, tally, judged_s),
        remarks=remarks_of(recorder, facts, wall, emulated),
    )


def _steps(steps: tuple[Step, ...], recorder: LoadRecorder) -> list[StepFigures]:
    """The figures per rate step; empty without --ramp, when the whole run is one step."""
    figures = []
    for step, part in zip(steps, recorder.steps, strict=False):
        wall, emulated = clock_figures(part.tally, part.gaps, part.emulated_gaps)
        figures.append(
            StepFigures(step=step.text(), calls=counted(part.tally), good=part.tally.good, wall=wall, emulated=emulated)
        )
    return figures
