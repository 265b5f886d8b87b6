"""The table of idle causes (rule 7): everything that counts, draws or explains idle time by cause derives from it.

The order is that of time: within a gap each cause follows the one above it. `stageline/engine/attribution.py` says
where each ends.
"""

from collections.abc import Mapping

import msgspec


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """One cause. `seen` is a template over the figures of `stageline/report/advice.py`."""

    name: str  # in stages.json, metrics and pictures
    meaning: str  # what the idle stage waits for, in a few words
    advice: str  # what can move it, in words; a promise takes a trial, which `stageline tune` makes
    colour: str  # on a light ground; people with any colour vision can tell them apart (Okabe and Ito)
    dark_colour: str  # on a dark ground
    seen: str = "Stages idle for {share:.0%} of the time ({name}: {meaning})"
    heading: str = ""  # of a narrow column; empty: the name
    settings: tuple[str, ...] = ()  # fields of `Scheduling` that can move it: what `tune` tries first
    hatch: str = ""  # where grey meets grey
    in_gap: bool = False  # whether a gap before a service is split into it
    bubble: bool = True  # False: the stage had nothing to serve, and bubble ratios leave it out
    optional: bool = False  # left out of records while zero, so that runs without it keep their digests

    @property
    def moved_by(self) -> str:
        """What can move it, with the flags of `run` that are its settings."""
        flags = ", ".join(f"--{setting.replace('_', '-')}" for setting in self.settings)
        return self.advice + (f" ({flags})" if flags else "")


TABLE: tuple[Cause, ...] = (
    Cause(
        name="starved",
        meaning="all requests wait for their previous token",
        seen="Stages wait for tokens to come back for {share:.0%} of the time (starved): too few microbatches are in "
        "flight for the {in_flight} requests that are served at once",
        advice="more requests at once, or smaller microbatches of the same requests, at a price for each",
        settings=("batched_tokens", "microbatch", "batching", "credits", "max_running", "kv"),
        colour="#E69F00",
        dark_colour="#E69F00",
        in_gap=True,
    ),
    Cause(
        name="empty",
        meaning="no request in the system",
        seen="No request was in the system for {share:.0%} of the time: these are latencies of an idle system",
        advice="the load (--rate-scale, --requests)",
        colour="#F5F5F5",
        dark_colour="#23262A",
        in_gap=True,
        bubble=False,
    ),
    Cause(
        name="transfer",
        meaning="all requests wait for KV from elsewhere",
        seen="Decode replicas wait for KV on its way to them for {share:.0%} of the time (transfer)",
        advice="the bandwidth of the ports, how much KV is sent, and how many replicas prefill (the fleet's)",
        colour="#8C4A2F",
        dark_colour="#B5714F",
        heading="xfer",
        in_gap=True,
        optional=True,
    ),
    Cause(
        name="credit",
        meaning="no credit free (in-flight limit)",
        seen="Work waits for one of {credits} credits for {share:.0%} of the stages' time",
        advice="the number of credits, and the size of microbatches, each of which needs one",
        settings=("credits", "microbatch", "batched_tokens", "batching"),
        colour="#CC79A7",
        dark_colour="#CC79A7",
        in_gap=True,
    ),
    Cause(
        name="kv_blocked",
        meaning="no KV room",
        advice="when KV is allocated, how many requests run, and the plan's KV room (formats, devices)",
        settings=("kv", "max_running", "prefix_cache", "queueing", "microbatch"),
        colour="#D55E00",
        dark_colour="#E8702A",
        heading="kv",
        in_gap=True,
    ),
    Cause(
        name="upstream",
        meaning="on the way through earlier stages",
        seen="Stages wait for microbatches on their way through earlier ones for {share:.0%} of the time "
        "(upstream): they follow each other with gaps; {busiest}",
        advice="how many microbatches are in flight, and how much they differ in size",
        settings=("batching", "microbatch", "credits", "batched_tokens", "max_running"),
        colour="#B5DFF7",
        dark_colour="#35607A",
        heading="upstr",
        in_gap=True,
    ),
    Cause(
        name="uneven",
        meaning="an earlier stage takes longer for the same microbatch",
        seen="Stages wait for slower ones before them for {share:.0%} of the time (uneven); {busiest}",
        advice="the cut of the layers (a plan's)",
        colour="#6A3D9A",
        dark_colour="#9C77C9",
        in_gap=True,
        optional=True,
    ),
    Cause(
        name="chunk",
        meaning="a prefill chunk at earlier stages",
        seen="Stages wait for prefill chunks at the ones before them for {share:.0%} of the time (chunk)",
        advice="the size of prefill chunks, and how many join one microbatch",
        settings=("batched_tokens", "balance", "batching", "microbatch"),
        colour="#F0E442",
        dark_colour="#C9BD2B",
        in_gap=True,
        optional=True,
    ),
    Cause(
        name="hop",
        meaning="on the link to this stage",
        seen="Stages wait for the link that leads to them for {share:.0%} of the time (hop)",
        advice="links and the number of hops (a plan's), and microbatches in flight, which hide it",
        settings=("credits", "microbatch", "batched_tokens"),
        colour="#009E73",
        dark_colour="#1FB58A",
        in_gap=True,
    ),
    Cause(
        name="fill",
        meaning="before the stage's first microbatch",
        advice="the length of the run (--requests)",
        colour="#D9D9D9",
        dark_colour="#3C4046",
        hatch="////",
    ),
    Cause(
        name="drain",
        meaning="after the stage's last microbatch",
        advice="the length of the run (--requests)",
        colour="#9E9E9E",
        dark_colour="#565B63",
        hatch="\\\\\\\\",
    ),
    Cause(
        name="fault",
        meaning="stage down",
        advice="the process of that stage; its log says why it is down",
        colour="#000000",
        dark_colour="#FF4D4D",
    ),
)

CAUSES = tuple(cause.name for cause in TABLE)
CAUSE: Mapping[str, Cause] = {cause.name: cause for cause in TABLE}
RECORDED = tuple(cause.name for cause in TABLE if not cause.optional)
GAP_CAUSES = tuple(cause.name for cause in TABLE if cause.in_gap)
BUBBLES = tuple(cause.name for cause in TABLE if cause.bubble)
NOT_BUBBLES = tuple(cause.name for cause in TABLE if not cause.bubble)
SHOWN = (*BUBBLES, *NOT_BUBBLES)  # the order of pictures and tables: bubbles next to busy time
