"""The table of idle causes (rule 7): everything that counts, draws or explains idle time by cause derives from it.

The order is that of time: within a gap each cause follows the one above it. `stageline/engine/attribution.py` says
where each ends.
"""

from collections.abc import Mapping

import msgspec


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """One cause. `seen` and `advice` are templates over the figures of `stageline/report/advice.py`."""

    name: str  # in stages.json, metrics and pictures
    meaning: str  # what the idle stage waits for, in a few words
    advice: str  # what to try when it takes much of the stages' time
    colour: str  # on a light ground; people with any colour vision can tell them apart (Okabe and Ito)
    dark_colour: str  # on a dark ground
    seen: str = "Stages idle for {share:.0%} of the time ({name}: {meaning})"
    heading: str = ""  # of a narrow column; empty: the name
    hatch: str = ""  # where grey meets grey
    in_gap: bool = False  # whether a gap before a service is split into it
    bubble: bool = True  # False: the stage had nothing to serve, and bubble ratios leave it out
    optional: bool = False  # left out of records while zero, so that runs without it keep their digests


TABLE: tuple[Cause, ...] = (
    Cause(
        name="starved",
        meaning="all requests wait for their previous token",
        seen="Stages wait for tokens to come back for {share:.0%} of the time (starved): too few microbatches are in "
        "flight for the {in_flight:.3g} requests that are served at once",
        advice="lower --microbatch so that the same requests fill more of the pipeline",
        colour="#E69F00",
        dark_colour="#E69F00",
        in_gap=True,
    ),
    Cause(
        name="empty",
        meaning="no request in the system",
        seen="No request was in the system for {share:.0%} of the time: these are latencies of an idle system",
        advice="raise --rate-scale to see it under load",
        colour="#F5F5F5",
        dark_colour="#23262A",
        in_gap=True,
        bubble=False,
    ),
    Cause(
        name="credit",
        meaning="no credit free (in-flight limit)",
        seen="Work waits for one of {credits} credits for {share:.0%} of the stages' time",
        advice="try --credits {more_credits}: throughput rises until the busiest stage is full",
        colour="#CC79A7",
        dark_colour="#CC79A7",
        in_gap=True,
    ),
    Cause(
        name="kv_blocked",
        meaning="no KV room",
        advice="try --kv grow, or a plan with --kv-cache-dtype fp8 or more devices per replica",
        colour="#D55E00",
        dark_colour="#E8702A",
        heading="kv",
        in_gap=True,
    ),
    Cause(
        name="upstream",
        meaning="queued or served at earlier stages",
        seen="Stages wait for the ones before them for {share:.0%} of the time (upstream); {busiest}",
        advice="plan again with layers spread by time, or give that stage more devices",
        colour="#B5DFF7",
        dark_colour="#35607A",
        heading="upstr",
        in_gap=True,
    ),
    Cause(
        name="hop",
        meaning="on the link to this stage",
        seen="Stages wait for the link that leads to them for {share:.0%} of the time (hop)",
        advice="use a faster link, or fewer stages of more devices each; more microbatches in flight hide it too",
        colour="#009E73",
        dark_colour="#1FB58A",
        in_gap=True,
    ),
    Cause(
        name="fill",
        meaning="before the stage's first microbatch",
        advice="give more --requests before judging throughput",
        colour="#D9D9D9",
        dark_colour="#3C4046",
        hatch="////",
    ),
    Cause(
        name="drain",
        meaning="after the stage's last microbatch",
        advice="give more --requests before judging throughput",
        colour="#9E9E9E",
        dark_colour="#565B63",
        hatch="\\\\\\\\",
    ),
    Cause(
        name="fault",
        meaning="stage down",
        advice="check the process of that stage and its log",
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
