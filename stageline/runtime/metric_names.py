"""The metrics of Stageline itself. Those under vLLM's names are in `vllm_names`."""

from stageline.engine.causes import NOT_BUBBLES
from stageline.runtime.metrics import Exporter, MetricSpec

_REPLICA = ("replica", "pool")
_PLACE = ("stage", *_REPLICA)
_PORT = (*_REPLICA, "direction")
_STAGE: tuple[Exporter, ...] = ("stage",)
_ROUTER: tuple[Exporter, ...] = ("router",)
_LIVE: tuple[Exporter, ...] = ("live router",)
_FINE_S = tuple(round(10.0**e * m, 9) for e in range(-5, 3) for m in (1, 2, 5))  # 10 us to 500 s

BUILD_INFO = MetricSpec(
    name="stageline_build_info", kind="gauge", help="1; the version that runs.", labels=("version",),
    by=("stage", "router"),
)  # fmt: skip

# A stage. Seconds are emulated; while no router holds the stage, wall time counts as idle `empty`.
STAGE_BUSY = MetricSpec(
    name="stageline_stage_busy_seconds_total", kind="counter", help="Emulated time spent serving.",
    labels=_PLACE, by=_STAGE,
)  # fmt: skip
STAGE_IDLE = MetricSpec(
    name="stageline_stage_idle_seconds_total", kind="counter",
    help=f"Emulated idle time by cause; every cause but {', '.join(NOT_BUBBLES)} is a bubble. "
    "Between sessions: wall time, empty or fault.",
    labels=(*_PLACE, "cause"), by=_STAGE,
)  # fmt: skip
STAGE_MICROBATCHES = MetricSpec(
    name="stageline_stage_microbatches_total", kind="counter", help="Microbatches served, all visits.",
    labels=_PLACE, by=_STAGE,
)  # fmt: skip
STAGE_FRAMES = MetricSpec(
    name="stageline_stage_frames_total", kind="counter", help="Frames received.", labels=_PLACE, by=_STAGE
)
STAGE_PROMISE_FRAMES = MetricSpec(
    name="stageline_stage_promise_frames_total", kind="counter", help="Frames received that carried a promise only.",
    labels=_PLACE, by=_STAGE,
)  # fmt: skip
STAGE_FRAME_MICROBATCHES = MetricSpec(
    name="stageline_stage_frame_microbatches_total", kind="counter", help="Microbatches received in frames.",
    labels=_PLACE, by=_STAGE,
)  # fmt: skip
STAGE_ASKS = MetricSpec(
    name="stageline_stage_asks_total", kind="counter", help="Promises asked for.", labels=_PLACE, by=_STAGE
)
LINK_PAYLOAD = MetricSpec(
    name="stageline_link_payload_bytes_total", kind="counter", help="Activation bytes sent on a link.",
    labels=(*_PLACE, "link"), by=_STAGE,
)  # fmt: skip
KV_STREAMED = MetricSpec(
    name="stageline_stage_kv_streamed_bytes_total", kind="counter",
    help="KV bytes of hand-overs that the stage has sent and that landed (sent), or that landed there (received). "
    "Payload modes capped, of which all bytes count, and full.",
    labels=(*_PLACE, "direction"), by=_STAGE,
)  # fmt: skip
STAGE_KV_USED = MetricSpec(
    name="stageline_stage_kv_used_bytes", kind="gauge", help="KV in the ledger.", labels=_PLACE, by=_STAGE
)
STAGE_KV_BUDGET = MetricSpec(
    name="stageline_stage_kv_budget_bytes", kind="gauge", help="What the ledger may hold.", labels=_PLACE, by=_STAGE
)
STAGE_CLOCK = MetricSpec(
    name="stageline_stage_emulated_seconds", kind="gauge", help="Emulated time at which the stage is free.",
    labels=_PLACE, by=_STAGE,
)  # fmt: skip
SESSION_OPEN = MetricSpec(
    name="stageline_session_open", kind="gauge", help="Whether a router holds this stage.", labels=_PLACE, by=_STAGE
)

# The router.
PLAN_INFO = MetricSpec(
    name="stageline_plan_info", kind="gauge", help="1; the plan that the router serves, or that of each pool.",
    labels=("plan_digest", "model", "device", "stages", "visits", "replicas", "pool"), by=_ROUTER,
)  # fmt: skip
REQUESTS = MetricSpec(name="stageline_requests_total", kind="counter", help="Requests that arrived.", by=_ROUTER)
FINISHED = MetricSpec(
    name="stageline_requests_finished_total", kind="counter", help="Requests that were served to their end.",
    by=_ROUTER,
)  # fmt: skip
FAILED = MetricSpec(
    name="stageline_requests_failed_total", kind="counter", help="Requests refused, cancelled or given up.", by=_ROUTER
)
MICROBATCHES = MetricSpec(
    name="stageline_microbatches_total", kind="counter", help="Microbatches dispatched.", by=_ROUTER
)
FRAMES = MetricSpec(name="stageline_frames_total", kind="counter", help="Frames that came back.", by=_ROUTER)
FRAME_MICROBATCHES = MetricSpec(
    name="stageline_frame_microbatches_total", kind="counter", help="Microbatches that came back in frames.",
    by=_ROUTER,
)  # fmt: skip
RUNNING = MetricSpec(name="stageline_requests_running", kind="gauge", help="Admitted requests.", by=_ROUTER)
WAITING = MetricSpec(
    name="stageline_requests_waiting", kind="gauge", help="Requests that wait for admission.", by=_ROUTER
)
CREDITS = MetricSpec(
    name="stageline_credits", kind="gauge", help="Microbatches that may be in flight.", labels=_REPLICA, by=_ROUTER
)
IN_FLIGHT = MetricSpec(
    name="stageline_microbatches_in_flight", kind="gauge", help="Microbatches in flight.", labels=_REPLICA,
    by=_ROUTER,
)  # fmt: skip
KV_REFUSALS = MetricSpec(
    name="stageline_kv_refusals_total", kind="counter",
    help="How often the ledger of a stage kept a sequence out of a microbatch: the stage that binds.",
    labels=_PLACE, by=_ROUTER,
)  # fmt: skip
STAGE_UP = MetricSpec(
    name="stageline_stage_up", kind="gauge", help="Whether the router finds the stage healthy.", labels=_PLACE,
    by=_ROUTER,
)  # fmt: skip
STAGE_OVERDUE = MetricSpec(
    name="stageline_stage_overdue_seconds", kind="gauge",
    help="For how long a stage has owed an answer, from 1 s on; 0: it does not hang.", labels=_PLACE, by=_LIVE,
)  # fmt: skip
EMULATED = MetricSpec(name="stageline_emulated_seconds", kind="gauge", help="Emulated clock.", by=_ROUTER)
RUN_OPEN = MetricSpec(
    name="stageline_run_open", kind="gauge", help="Whether a run in emulated time goes on.", by=_ROUTER
)
TTFT = MetricSpec(
    name="stageline_time_to_first_token_seconds", kind="histogram",
    help="Emulated time from arrival to the first token, in buckets fine enough for wafers.", labels=_REPLICA,
    by=_ROUTER, bounds=_FINE_S,
)  # fmt: skip
ITL = MetricSpec(
    name="stageline_inter_token_latency_seconds", kind="histogram",
    help="Emulated time between two tokens of a request, in buckets fine enough for wafers.", labels=_REPLICA,
    by=_ROUTER, bounds=_FINE_S,
)  # fmt: skip

# The router of a fleet that hands KV over. Bytes are those of all stages of the source.
PORT_BUSY = MetricSpec(
    name="stageline_port_busy_seconds_total", kind="counter",
    help="Emulated time for which the port of a replica sent KV (egress) or received it (ingress).", labels=_PORT,
    by=_ROUTER,
)  # fmt: skip
PORT_BYTES = MetricSpec(
    name="stageline_port_bytes_total", kind="counter", help="KV that went through the port, in whole transfers.",
    labels=_PORT, by=_ROUTER,
)  # fmt: skip
KV_MOVING = MetricSpec(
    name="stageline_kv_in_flight_bytes", kind="gauge",
    help="KV whose transfer is booked and has not landed, by its source (egress) and by its destination (ingress).",
    labels=_PORT, by=_ROUTER,
)  # fmt: skip
KV_MOVING_REQUESTS = MetricSpec(
    name="stageline_kv_in_flight_requests", kind="gauge", help="Requests with KV in flight.", labels=_PORT, by=_ROUTER
)
KV_PINNED = MetricSpec(
    name="stageline_kv_pinned_bytes", kind="gauge",
    help="KV of prefilled prompts that their source keeps until it is sent.", labels=_REPLICA, by=_ROUTER,
)  # fmt: skip
KV_PINNED_REQUESTS = MetricSpec(
    name="stageline_kv_pinned_requests", kind="gauge", help="Requests whose KV is pinned at their source.",
    labels=_REPLICA, by=_ROUTER,
)  # fmt: skip
HAND_OVERS_WAITING = MetricSpec(
    name="stageline_hand_overs_waiting", kind="gauge",
    help="Requests in the queue of a decode replica, until there is room for their KV.", labels=_REPLICA, by=_ROUTER,
)  # fmt: skip
HAND_OVER = MetricSpec(
    name="stageline_hand_over_seconds", kind="histogram",
    help="Emulated time from the first token to the landing of the KV, by decode replica, counted when the request "
    "ends. Nothing where decode replicas give the first token.", labels=_REPLICA, by=_ROUTER, bounds=_FINE_S,
)  # fmt: skip
KV_TRANSFER = MetricSpec(
    name="stageline_kv_transfer_seconds", kind="histogram",
    help="Emulated time from the start of the first transfer to the landing of the last, by decode replica, counted "
    "when the request ends.", labels=_REPLICA, by=_ROUTER, bounds=_FINE_S,
)  # fmt: skip

# The live side of the router.
LIVE_READY = MetricSpec(name="stageline_live_ready", kind="gauge", help="Whether requests are taken.", by=_LIVE)
DILATION = MetricSpec(name="stageline_live_dilation", kind="gauge", help="Wall time per emulated time.", by=_LIVE)
LIVE_REQUESTS = MetricSpec(name="stageline_live_requests", kind="gauge", help="Requests being served.", by=_LIVE)
LIVE_WAITING = MetricSpec(name="stageline_live_requests_waiting", kind="gauge", help="Requests that wait.", by=_LIVE)
LIVE_REFUSED = MetricSpec(
    name="stageline_live_refused_total", kind="counter",
    help="Requests that were not taken: no live session was open (unavailable), or the queue was full (queue).",
    labels=("reason",), by=_LIVE,
)  # fmt: skip
SLIP = MetricSpec(
    name="stageline_clock_slip_seconds_total", kind="counter",
    help="Wall time that the emulated clock waited for this host.", by=_LIVE,
)  # fmt: skip
LIVE_FAILURES = MetricSpec(
    name="stageline_live_failures_total", kind="counter", help="Sessions that broke off.", by=_LIVE
)
LIVE_RETRIES = MetricSpec(
    name="stageline_live_retries_total", kind="counter",
    help="How often a session was done again after the loss of a stage (--session-retries).", by=_LIVE,
)  # fmt: skip
RECORDING_FAILURES = MetricSpec(
    name="stageline_recording_failures_total", kind="counter",
    help="Recordings that ended early, without a digest: a line could not be written.", by=_LIVE,
)  # fmt: skip
LATENESS = MetricSpec(
    name="stageline_delivery_lateness_seconds", kind="histogram",
    help="Wall time from a token's due time to its delivery.", by=_LIVE,
)  # fmt: skip

OWN = tuple(value for value in list(globals().values()) if isinstance(value, MetricSpec))
