"""What was seen of a server: `stageline observe` writes it, `stageline calibrate` reads it."""

from pathlib import Path
from typing import Literal

import msgspec

from stageline.errors import UsageError

OBSERVATION_FILE = "observation.json"
OBSERVATION_FORMAT = "stageline-observation/1"
Engine = Literal["vllm", "sglang", ""]


class SeenMetrics(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What /metrics said. Peaks are those of the scrapes; None: the server does not export it."""

    url: str
    scrapes: int
    failure: str = ""  # why the last scrape gave nothing
    engine: Engine = ""  # whose names the metrics carry
    running_peak: float | None = None
    waiting_peak: float | None = None
    kv_usage_peak: float | None = None  # share
    preemptions: float | None = None  # while the workload ran
    prefix_hit_ratio: float | None = None  # of looked-up prompt tokens, while the workload ran


class Observation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One workload on one server. Times of calls are in requests.csv beside it."""

    url: str
    model: str  # as the server calls it
    command: str
    workload: str
    seed: int
    version: str
    complete: bool
    calls: dict[str, int]  # by outcome, without warm-up
    clock: Literal["wall", "emulated"]  # of the times that count
    dilations: tuple[str, ...]  # wall time per emulated time, as replies state it; empty: the server runs in wall time
    shared_prefixes: bool  # the workload names common beginnings of prompts
    metrics: SeenMetrics
    remarks: tuple[str, ...] = ()
    format: str = OBSERVATION_FORMAT


def read_observation(directory: Path) -> Observation:
    """The observation in a directory. Raises UsageError."""
    path = directory / OBSERVATION_FILE
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Observation)
    except OSError as error:
        raise UsageError(f"{path}: can't be read: {error.strerror}; make it with stageline observe") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: not an observation: {error}; make it with stageline observe") from None
    if found.format != OBSERVATION_FORMAT:
        raise UsageError(f"{path}: format {found.format}, not {OBSERVATION_FORMAT}; observe the server again")
    return found
