"""The flags of `stageline load` in their groups."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from stageline.cli.directory import DIRECTORY
from stageline.cli.groups import CALLS, OUTPUT, SERVER
from stageline.cli.numbers import WHOLE
from stageline.cli.security_flags import SecurityFlags
from stageline.errors import BadInput, UsageError
from stageline.load.driver import Turns
from stageline.load.options import MAX_CONNECTIONS, Endpoint, PromptKind, checked_url
from stageline.load.ramp import parse_ramp
from stageline.load.schedule import NO_WARMUP, parse_warmup
from stageline.report.slo import parse_slo
from stageline.units import NS_PER_S, parse_duration_ns

MAX_CALLS = 1 << 14  # per request
MAX_RETRIES = 1000


@Parameter(name="*", group=SERVER)
@dataclass(frozen=True, slots=True, kw_only=True)
class ApiFlags:
    """How a server is called."""

    endpoint: Annotated[Endpoint, Parameter(help="API to call.")] = "completions"
    model: Annotated[
        str, Parameter(show_default=False, help="Name of the model; default: the first that the server lists.")
    ] = ""
    security: SecurityFlags = SecurityFlags()  # noqa: RUF009  (frozen)

    def called(self, url: str) -> dict[str, Any]:
        """Fields of `LoadOptions`. Raises UsageError or BadInput."""
        return {
            "url": checked_url(url),
            "endpoint": self.endpoint,
            "model": self.model,
            "api_key": self.security.api_key or os.environ.get("OPENAI_API_KEY", ""),
            "tls": self.security.files(),
        }


@Parameter(name="*", group=SERVER)
@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFlags(ApiFlags):
    """Who is called, and how."""

    url: Annotated[
        str, Parameter(help="URL of an OpenAI-compatible server, http(s)://HOST:PORT, or grpc(s)://HOST:PORT.")
    ]

    def options(self) -> dict[str, Any]:
        """Fields of `LoadOptions`. Raises UsageError or BadInput."""
        return self.called(self.url)


@Parameter(name="*", group=CALLS)
@dataclass(frozen=True, slots=True, kw_only=True)
class CallFlags:
    """What is sent, and when."""

    prompts: Annotated[
        PromptKind, Parameter(help="Send the prompts of completions as token ids (exact) or as text.")
    ] = "ids"
    turns: Annotated[int, WHOLE, Parameter(help="Turns per conversation; each call sends the conversation so far.")] = 1
    think: Annotated[str, Parameter(help="Think time between a reply and the next turn, like 5s.")] = "0"
    ramp: Annotated[str | None, Parameter(help="Rate steps, as FACTOR:DURATION, like 0.5:30s,1:60s,2.")] = None
    duration: Annotated[str | None, Parameter(help="Time after which nothing more is sent, like 60s.")] = None
    connections: Annotated[
        int, WHOLE, Parameter(help="Maximum number of calls in flight; others wait, and the wait counts as latency.")
    ] = 1024
    timeout: Annotated[str, Parameter(help="Wall time after which a call counts as failed.")] = "600s"
    retries: Annotated[
        int, WHOLE, Parameter(help="How often a call that was refused or found no server is sent again.")
    ] = 0
    ignore_eos: Annotated[bool, Parameter(help="Ask for exact lengths (ignore_eos, min_tokens).")] = True
    extra_body: Annotated[
        str, Parameter(show_default=False, help="Extra fields of every request body, as a JSON object.")
    ] = ""

    def options(self) -> dict[str, Any]:
        """Fields of `LoadOptions`. Raises UsageError or BadInput."""
        turns, think_ns = _between("--turns", self.turns, MAX_CALLS), parse_duration_ns(self.think, "--think")
        if think_ns and turns == 1:
            raise UsageError(f"--think {self.think}: a conversation of one turn has no pause: add --turns 2 or more")
        return {
            "prompts": self.prompts,
            "turns": Turns(turns, think_ns),
            "steps": () if self.ramp is None else parse_ramp(self.ramp),
            "duration_ns": None if self.duration is None else _positive_ns("--duration", self.duration),
            "connections": _between("--connections", self.connections, MAX_CONNECTIONS),
            "timeout_s": _positive_ns("--timeout", self.timeout) / NS_PER_S,
            "retries": _between("--retries", self.retries, MAX_RETRIES, least=0),
            "ignore_eos": self.ignore_eos,
            "extra_body": self.extra_body,
        }


@Parameter(name="*", group=OUTPUT)
@dataclass(frozen=True, slots=True, kw_only=True)
class ResultFlags:
    """What is measured, and where it goes."""

    slo: Annotated[
        str | None, Parameter(help="Objective, like ttft=2s,tpot=50ms,attainment=0.99; exit code 3 if it is missed.")
    ] = None
    wall: Annotated[
        bool, Parameter(negative="", help="Read rates, times and SLO as wall time, not as emulated time.")
    ] = False
    warmup: Annotated[
        str | None, Parameter(help="Number of requests (50) or time (30s) at the start to leave out of the figures.")
    ] = None
    output: Annotated[Path | None, DIRECTORY, Parameter(name=("-o", "--output"), help="Directory for results.")] = None
    json: Annotated[bool, Parameter(negative="", help="Print summary.json instead of tables.")] = False

    def options(self) -> dict[str, Any]:
        """Fields of `LoadOptions`. Raises BadInput."""
        return {
            "slo": None if self.slo is None else parse_slo(self.slo),
            "wall": self.wall,
            "warmup": NO_WARMUP if self.warmup is None else parse_warmup(self.warmup),
            "directory": self.output,
        }


def _between(flag: str, value: int, most: int, *, least: int = 1) -> int:
    if not least <= value <= most:
        raise BadInput(flag, value, f"not between {least} and {most:,}", "give a number in that range")
    return value


def _positive_ns(flag: str, text: str) -> int:
    """A duration in ns that is longer than 0."""
    duration_ns = parse_duration_ns(text, flag)
    if not duration_ns:
        raise BadInput(flag, text, "must be longer than 0", "give a time such as 60s")
    return duration_ns
