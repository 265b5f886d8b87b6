"""The flags of `stageline up` that say how live requests are served."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from stageline.report.spans.context import DEFAULT_RATIO


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class LiveFlags:
    """Each but `dilation`, which `up` reads itself, is a setting of the router."""

    http_port: Annotated[int, Parameter(help="OpenAI-compatible HTTP port; 0: any, -1: none")] = 8000
    dilation: Annotated[str, Parameter(help="wall time per emulated time: auto, 1 (real time), 50, ...")] = "auto"
    record: Annotated[Path | None, Parameter(help="record live sessions for run --workload")] = None
    seed: Annotated[int, Parameter(help="of live sessions")] = 0
    output_lengths: Annotated[str, Parameter(help="tokens of outputs: max, echo, constant:128, lognormal(...)")] = "max"
    served_model_name: Annotated[str, Parameter(help="names of the model, comma-separated")] = ""
    tokenizer: Annotated[
        Path | None, Parameter(help="a tokenizer.json that counts prompts; needs stageline[tokenizer]")
    ] = None
    otlp: Annotated[str, Parameter(help="send request spans to a collector, like http://localhost:4318")] = ""
    trace_sample: Annotated[float, Parameter(help="share traced of requests without a traceparent")] = DEFAULT_RATIO

    def settings(self) -> dict[str, object]:
        """As the router's flags, without `--` and without the dilation."""
        return {
            "http-port": self.http_port,
            "record": self.record.resolve() if self.record else "",
            "seed": self.seed,
            "output-lengths": self.output_lengths,
            "served-model-name": self.served_model_name,
            "tokenizer": self.tokenizer.resolve() if self.tokenizer else "",
            "otlp": self.otlp,
            "trace-sample": self.trace_sample,
        }
