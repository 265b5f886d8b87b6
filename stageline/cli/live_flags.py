"""The flags of `stageline up` that say how live requests are served."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from stageline.cli.groups import LIVE
from stageline.cli.numbers import DECIMAL, WHOLE
from stageline.report.spans.context import DEFAULT_RATIO
from stageline.runtime import deadline


@Parameter(name="*", group=LIVE)
@dataclass(frozen=True, slots=True, kw_only=True)
class LiveFlags:
    """Settings of the router, except `dilation`, which `up` reads itself."""

    http_port: Annotated[
        int, WHOLE, Parameter(help="Port of the OpenAI-compatible server; 0: any free port, -1: none.")
    ] = 8000
    dilation: Annotated[
        str, Parameter(help="Wall time per emulated time: auto, 1 for real time, or a factor like 50.")
    ] = "auto"
    record: Annotated[Path | None, Parameter(help="Record live sessions into this file, for run --workload.")] = None
    stage_deadline: Annotated[
        str, Parameter(help="How long a stage may owe an answer before it counts as lost, such as 10s.")
    ] = deadline.DEFAULT
    session_retries: Annotated[
        int,
        WHOLE,
        Parameter(help="How often a live session is done again when a stage is lost; its streams go on then."),
    ] = 0
    queue: Annotated[
        int, WHOLE, Parameter(help="How many requests may wait for admission; more are answered with 429.")
    ] = 1000
    seed: Annotated[int, WHOLE, Parameter(help="Seed of live sessions.")] = 0
    output_lengths: Annotated[
        str, Parameter(help="Output length in tokens: max, echo, constant:128, lognormal(...).")
    ] = "max"
    served_model_name: Annotated[
        str, Parameter(show_default=False, help="Names of the model, separated by commas; default: the plan's.")
    ] = ""
    tokenizer: Annotated[
        Path | None, Parameter(help="Path of a tokenizer.json to count prompts with; needs stageline[tokenizer].")
    ] = None
    otlp: Annotated[
        str,
        Parameter(
            show_default=False, help="Send request spans to this OTLP/HTTP collector, like http://localhost:4318."
        ),
    ] = ""
    trace_sample: Annotated[float, DECIMAL, Parameter(help="Fraction of requests without a traceparent to trace.")] = (
        DEFAULT_RATIO
    )

    rate_limit: Annotated[
        str, Parameter(show_default=False, help="Calls that each API key may make, per s, m or h, like 600/m.")
    ] = ""
    image_tokens: Annotated[
        int, WHOLE, Parameter(help="Tokens that an image in a chat counts as; 0: images are refused.")
    ] = 0

    def settings(self) -> dict[str, object]:
        """As the router's flags, without `--` and without the dilation."""
        return {
            "http-port": self.http_port,
            "record": self.record.resolve() if self.record else "",
            "stage-deadline": self.stage_deadline,
            "session-retries": self.session_retries,
            "queue": self.queue,
            "seed": self.seed,
            "output-lengths": self.output_lengths,
            "served-model-name": self.served_model_name,
            "tokenizer": self.tokenizer.resolve() if self.tokenizer else "",
            "otlp": self.otlp,
            "trace-sample": self.trace_sample,
            "rate-limit": self.rate_limit,
            "image-tokens": self.image_tokens,
        }
