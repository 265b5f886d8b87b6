"""Settings of the router, and how it finds its stages."""

from typing import Annotated, Literal

import msgspec

from stageline.engine.settings import MAX_SEED
from stageline.errors import UsageError
from stageline.report.spans.context import DEFAULT_RATIO
from stageline.runtime import deadline
from stageline.runtime.deployment import Deployment
from stageline.runtime.settings import ServerSettings


class RouterSettings(ServerSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Routes requests through the stages of a Stageline pipeline."""

    plan: Annotated[str, msgspec.Meta(description="Plan file or fleet file; required.")] = ""
    stages: Annotated[
        str,
        msgspec.Meta(
            description="Addresses of all stages, host:port,... by replica and stage, or one pattern with {stage} and "
            "{replica} or {pool}, such as stage-{stage}:50051; required."
        ),
    ] = ""
    advertise: Annotated[str, msgspec.Meta(description="Address at which stages reach this router, host:port.")] = ""
    window: Annotated[
        int, msgspec.Meta(ge=0, description="Flow-control window: frames in flight per replica; 0: two per core.")
    ] = 0
    payload: Annotated[
        Literal["size", "capped", "full"],
        msgspec.Meta(
            description="How many bytes of activations, and of KV that is handed over, are actually sent, "
            "unless a run says otherwise."
        ),
    ] = "size"
    live: Annotated[bool, msgspec.Meta(description="Serve clients in wall time, over HTTP and Generate.")] = True
    http_host: Annotated[str, msgspec.Meta(description="Address of the HTTP API; empty: that of --grpc-host.")] = ""
    http_port: Annotated[
        int, msgspec.Meta(ge=-1, le=65535, description="Port of the HTTP API; 0: any free port, -1: none.")
    ] = 8000
    dilation: Annotated[
        str,
        msgspec.Meta(
            description="Wall time per emulated time in live sessions: a factor, or auto for the smallest that this "
            "host sustains."
        ),
    ] = "auto"
    record: Annotated[
        str, msgspec.Meta(description="File to record live sessions in, for stageline run --workload.")
    ] = ""
    otlp: Annotated[
        str,
        msgspec.Meta(description="OTLP/HTTP collector of request spans, like http://localhost:4318; empty: none."),
    ] = ""
    trace_sample: Annotated[
        float, msgspec.Meta(ge=0, le=1, description="Fraction of live requests without a traceparent to trace.")
    ] = DEFAULT_RATIO
    served_model_name: Annotated[
        str, msgspec.Meta(description="Names of the model, separated by commas; empty: the plan's.")
    ] = ""
    output_lengths: Annotated[
        str,
        msgspec.Meta(
            description="Output length in tokens: max (what a request asks for), echo, constant:128, uniform(a,b), "
            "lognormal(mean,cv=x) or trace(FILE)."
        ),
    ] = "max"
    tokenizer: Annotated[
        str, msgspec.Meta(description="Path of a tokenizer.json to count prompts with; empty: a synthetic tokenizer.")
    ] = ""
    queue: Annotated[
        int, msgspec.Meta(ge=1, description="Maximum number of live requests that wait for admission.")
    ] = 1000
    api_key: Annotated[
        str,
        msgspec.Meta(
            description="API key that HTTP and gRPC clients must send, or several, separated by commas; empty: none."
        ),
    ] = ""
    rate_limit: Annotated[
        str,
        msgspec.Meta(
            description="Calls that each API key, or without keys each address, may make, per s, m or h, such as "
            "600/m; more get 429 with Retry-After. Empty: no limit."
        ),
    ] = ""
    image_tokens: Annotated[
        int, msgspec.Meta(ge=0, le=1 << 20, description="Tokens that an image in a chat counts as; 0: it is refused.")
    ] = 0
    dashboards: Annotated[
        str,
        msgspec.Meta(pattern="^(https?://.*)?$", description="Address of Grafana, for a link on the router's page."),
    ] = ""
    trust_runs: Annotated[
        bool,
        msgspec.Meta(description="Let runs name a queueing policy package.module:Class and trace files on this host."),
    ] = False
    stage_deadline: Annotated[
        str,
        msgspec.Meta(description="How long a stage may owe an answer or a frame, such as 10s."),
    ] = deadline.DEFAULT
    session_retries: Annotated[
        int,
        msgspec.Meta(
            ge=0,
            le=100,
            description="How often a live session is done again when a stage is lost; its streams wait "
            "and go on. 0: they end with an error.",
        ),
    ] = 0
    seed: Annotated[int, msgspec.Meta(ge=0, le=MAX_SEED, description="Seed of live sessions.")] = 0
    scheduling: Annotated[
        str,
        msgspec.Meta(description='Scheduling settings of live sessions as JSON, such as {"credits": 8, "kv": "grow"}.'),
    ] = "{}"

    @property
    def unasked(self) -> str:
        """See ServerSettings; an API key authenticates clients, too."""
        return "" if self.api_key else super().unasked


def stage_addresses(text: str, deployment: Deployment) -> list[list[str]]:
    """Addresses by replica, stage. Raises UsageError when there are not as many as the plans have stages."""
    places = list(deployment.stages)
    if "{stage" in text:
        try:
            flat = [text.format(stage=s, replica=r, pool=deployment.pool(r)) for r, s in places]
        except (KeyError, IndexError, ValueError):
            raise UsageError(
                f"--stages {text!r}: only {{stage}}, {{replica}} and {{pool}} may stand in a pattern"
            ) from None
    else:
        flat = [address.strip() for address in text.split(",") if address.strip()]
    if len(flat) != len(places):
        pools = deployment.fleet.pools
        needed = " + ".join(f"{len(p.route.plan.stages)} stages x {p.replicas} replicas" for p in pools)
        raise UsageError(f"--stages lists {len(flat)} addresses; {needed} need {len(places)}")
    rows: list[list[str]] = [[] for _ in range(deployment.replicas)]
    for (replica, _), address in zip(places, flat, strict=True):
        rows[replica].append(address)
    return rows
