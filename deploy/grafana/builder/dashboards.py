"""The dashboards. `scripts/dashboards` writes them; a test compares the committed JSON with this module."""

from deploy.grafana.builder.panels import Dashboard, Query, gauges, lines, number, rows_over_time, stacked, words
from stageline.engine.causes import NOT_BUBBLES
from stageline.report.palette import DARK_BUSY, DARK_CAUSE_COLOURS

R = '{replica=~"$replica"}'
RATE = "[$__rate_interval]"
PLACE = "stage {{stage}}"

LOAD = """\
To generate load, from the checkout:

```
docker compose run --rm cli run /data/deploy/compose/llama-3.1-70b.json --engine cluster --cluster router:50051 \\
  --workload poisson:rate=20,input=1024,output=128,requests=5000
```

Everything here is in **emulated** time: it does not depend on how fast this host is. *Emulator* shows the host.
"""


def padded(expr: str) -> str:
    """Stage numbers with two digits, so that rows sort as stages do."""
    return f'label_replace({expr}, "stage", "0$1", "stage", "(.)")'


def share(name: str, group: str) -> str:
    """A stage counter's rate as a share of all of the stage's time."""
    total = " + ".join(f"sum(rate(stageline_stage_{kind}_seconds_total{R}{RATE}))" for kind in ("busy", "idle"))
    return f"{group}(rate({name}{R}{RATE})) / scalar({total})"


def per(above: str, below: str) -> str:
    """A ratio of two counters' rates."""
    return f"sum(rate({above}{RATE})) / sum(rate({below}{RATE}))"


def quantile(q: float, metric: str) -> Query:
    """Of a histogram over all replicas."""
    return Query(f"histogram_quantile({q}, sum by (le) (rate({metric}_bucket{RATE})))", f"p{q * 100:g}")


BUSY = "avg(stageline:stage_busy:ratio" + R + ")"
BUBBLE = "avg(stageline:stage_bubble:ratio" + R + ")"

PIPELINE = Dashboard(
    "stageline-pipeline",
    "Pipeline",
    "What every stage does, and why it idles.",
    (
        number("Occupancy", Query(BUSY), unit="percentunit", text="Mean over stages: serving, share of all time."),
        number("Bubbles", Query(BUBBLE), unit="percentunit", text="Idle share of the time in which there is work."),
        number(
            "Busiest stage",
            Query(f"topk(1, stageline:stage_busy:ratio{R})", PLACE, instant=True),
            unit="percentunit",
            text="It bounds throughput.",
            named=True,
        ),
        number(
            "KV-bound stage",
            Query(f"topk(1, increase(stageline_kv_refusals_total{R}[5m]) > 0)", PLACE, instant=True),
            text="The stage whose KV ledger refused most often in the last five minutes, and how often.",
            named=True,
            without="none",
        ),
        number("In flight", Query(f"sum(stageline_microbatches_in_flight{R})"), text="Microbatches in flight."),
        number(
            "Emulated tokens/s",
            Query(
                f"sum(rate(vllm:generation_tokens_total{RATE})) / scalar(deriv(stageline_emulated_seconds{RATE}) > 0)"
            ),
            text="Output tokens per second of emulated time.",
        ),
        rows_over_time(
            "Occupancy of each stage",
            Query(padded(f"stageline:stage_busy:ratio{R}"), PLACE),
            text="Share of each stage's time spent serving. Dark is busy.",
            height=16,
        ),
        stacked(
            "Where the stages' time goes",
            Query(share("stageline_stage_busy_seconds_total", "sum"), "busy"),
            Query(share("stageline_stage_idle_seconds_total", "sum by (cause)"), "{{cause}}"),
            colours={"busy": DARK_BUSY, **DARK_CAUSE_COLOURS},
            width=12,
            text=f"Busy, and idle by cause. Every cause but {', '.join(NOT_BUBBLES)} is a bubble.",
        ),
        lines(
            "The five busiest stages",
            Query(f"topk(5, stageline:stage_busy:ratio{R})", PLACE),
            unit="percentunit",
            defaults={"max": 1},
        ),
        rows_over_time(
            "Bubbles of each stage",
            Query(padded(f"stageline:stage_bubble:ratio{R}"), PLACE),
            text="Idle share of the time in which there is work. Dark is waiting.",
            height=12,
        ),
        gauges(
            "KV of each stage",
            Query(padded(f"stageline:stage_kv:ratio{R}"), "{{stage}}", instant=True),
            text="Ledger in use, share of its budget.",
        ),
        lines(
            "In flight against credits",
            Query(f"sum(stageline_microbatches_in_flight{R})", "in flight"),
            Query(f"sum(stageline_credits{R})", "credits"),
            text="With all credits in flight, work waits at the router.",
        ),
        lines(
            "Link traffic",
            Query(f"topk(8, sum by (link) (rate(stageline_link_payload_bytes_total{R}{RATE})))", "link {{link}}"),
            Query(f"sum by (direction) (rate(stageline_stage_kv_streamed_bytes_total{R}{RATE}))", "KV {{direction}}"),
            unit="Bps",
            text="Activation bytes per second of wall time; the eight busiest links. KV: that is handed over, while "
            "the payload mode is capped or full.",
        ),
        words("Load", LOAD, width=12, height=8),
    ),
)

CLUSTER = Dashboard(
    "stageline-cluster",
    "Cluster",
    "Requests, tokens and latencies as clients see them, in emulated seconds.",
    (
        number("Running", Query("sum(stageline_requests_running)")),
        number("Waiting", Query("sum(stageline_requests_waiting)")),
        number("Finished", Query("sum(stageline_requests_finished_total)")),
        number(
            "Not finished",
            Query("sum(stageline_requests_failed_total)"),
            text="Refused, cancelled, or lost with a session.",
        ),
        number("KV, fullest stage", Query("max(vllm:kv_cache_usage_perc)"), unit="percentunit"),
        number("Stages up", Query("sum(stageline_stage_up)")),
        lines(
            "Requests",
            Query(f"sum(rate(stageline_requests_total{RATE}))", "arrived"),
            Query(f"sum(rate(stageline_requests_finished_total{RATE}))", "finished"),
            unit="reqps",
            text="Per second of wall time.",
        ),
        lines(
            "Tokens",
            Query(f"sum(rate(vllm:generation_tokens_total{RATE}))", "output"),
            Query(f"sum(rate(vllm:prompt_tokens_total{RATE}))", "prompt"),
            text="Per second of wall time.",
        ),
        lines(
            "Time to first token",
            *(quantile(q, "stageline_time_to_first_token_seconds") for q in (0.5, 0.9, 0.99)),
            unit="s",
        ),
        lines(
            "Time per output token",
            *(quantile(q, "stageline_inter_token_latency_seconds") for q in (0.5, 0.9, 0.99)),
            unit="s",
            text="Between two tokens of a request.",
        ),
        lines(
            "End to end",
            *(quantile(q, "vllm:e2e_request_latency_seconds") for q in (0.5, 0.9, 0.99)),
            unit="s",
        ),
        lines(
            "Queue",
            Query("sum(stageline_requests_running)", "running"),
            Query("sum(stageline_requests_waiting)", "waiting"),
        ),
        lines(
            "Ended",
            Query(f"sum by (finished_reason) (rate(vllm:request_success_total{RATE}))", "{{finished_reason}}"),
            unit="reqps",
            text="abort: the client left. error: refused, or a stage was lost.",
        ),
        lines(
            "Preemptions and prefix cache",
            Query(f"sum(rate(vllm:num_preemptions_total{RATE}))", "preemptions/s"),
            Query(per("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"), "hit share"),
        ),
        lines(
            "Speculative decoding",
            Query(
                per("vllm:spec_decode_num_accepted_tokens_total", "vllm:spec_decode_num_draft_tokens_total"),
                "accepted share of draft tokens",
            ),
            Query(
                f"1 + {per('vllm:spec_decode_num_accepted_tokens_total', 'vllm:spec_decode_num_drafts_total')}",
                "tokens per decode step",
            ),
            text="Nothing without --speculate. Steps that carried drafts; each also yields a token of its own.",
        ),
    ),
)

FRAME = f"sum(rate(stageline_stage_frames_total{R}{RATE}))"

EMULATOR = Dashboard(
    "stageline-emulator",
    "Emulator",
    "What the emulation costs this host. None of it changes an emulated figure.",
    (
        number("Emulated speed", Query(f"max(deriv(stageline_emulated_seconds{RATE}))"), text="Emulated s per wall s."),
        number("Dilation", Query("max(stageline_live_dilation)"), text="Wall time per emulated time of live sessions."),
        number("Clock slip", Query(f"sum(rate(stageline_clock_slip_seconds_total{RATE}))"), unit="percentunit",
               text="Share of wall time that the emulated clock waited for this host."),
        number("CPU", Query(f"sum(rate(process_cpu_seconds_total{RATE}))"), text="Cores in use, all processes.",
               width=3),
        number("Memory", Query("sum(process_resident_memory_bytes)"), unit="bytes", width=3),
        number("Lost sessions", Query("sum(stageline_live_failures_total)"), width=3),
        number("Done again", Query("sum(stageline_live_retries_total)"), width=3,
               text="Sessions done again after the loss of a stage; their streams went on."),
        lines(
            "Lateness of tokens",
            *(quantile(q, "stageline_delivery_lateness_seconds") for q in (0.5, 0.99)),
            unit="s",
            text="Wall time from a token's due time to its delivery.",
        ),
        lines(
            "Clock slip",
            Query(f"rate(stageline_clock_slip_seconds_total{RATE})", "slip"),
            unit="percentunit",
            text="Share of wall time. Emulated latencies stay right while clients wait longer.",
        ),
        lines(
            "Frames",
            Query(FRAME, "frames"),
            Query(f"sum(rate(stageline_stage_promise_frames_total{R}{RATE}))", "promise only"),
            Query(f"sum(rate(stageline_stage_asks_total{R}{RATE}))", "asks"),
            unit="ops",
        ),
        lines(
            "Microbatches per frame",
            Query(f"sum(rate(stageline_stage_frame_microbatches_total{R}{RATE})) / {FRAME}", "stages"),
            Query(per("stageline_frame_microbatches_total", "stageline_frames_total"), "router"),
            text="Coalescing: the more per frame, the less each costs.",
        ),
        lines(
            "CPU by process",
            Query(f"topk(8, rate(process_cpu_seconds_total{RATE}))", "{{job}} {{instance}}"),
            text="Cores; the eight busiest.",
        ),
        lines(
            "Memory by process",
            Query("topk(8, process_resident_memory_bytes)", "{{job}} {{instance}}"),
            unit="bytes",
        ),
    ),
)  # fmt: skip


def by_pool(name: str, function: str = "sum") -> str:
    """Of all replicas of a pool, each direction for itself."""
    return f"{function} by (pool, direction) ({name}{R})"


PORT = "{{pool}} {{direction}}"
PORT_SHARE = f"avg by (pool, direction) (rate(stageline_port_busy_seconds_total{R}{RATE}))"
CLOCK_RATE = f"scalar(deriv(stageline_emulated_seconds{RATE}) > 0)"

FLEET = Dashboard(
    "stageline-fleet",
    "Fleet",
    "KV on its way from prefill to decode replicas. Nothing without a fleet that hands requests over.",
    (
        number("KV in flight", Query('sum(stageline_kv_in_flight_bytes{direction="ingress",replica=~"$replica"})'),
               unit="bytes", text="Booked, and not landed yet."),
        number("KV pinned", Query(f"sum(stageline_kv_pinned_bytes{R})"), unit="bytes",
               text="Of prefilled prompts, at their sources: waiting for a decode replica, or being sent."),
        number("Wait for a decode replica", Query(f"sum(stageline_hand_overs_waiting{R})"),
               text="Requests in the queues of decode replicas, until there is room for their KV."),
        number(
            "Busiest port",
            Query(f"topk(1, rate(stageline_port_busy_seconds_total{R}{RATE}) / {CLOCK_RATE})",
                  "replica {{replica}} {{direction}}", instant=True),
            unit="percentunit",
            text="Share of emulated time in which it sends or receives.",
            width=12,
            named=True,
        ),
        lines(
            "Ports",
            Query(f"{PORT_SHARE} / {CLOCK_RATE}", PORT),
            unit="percentunit",
            text="Share of emulated time in which ports send or receive: the mean of each pool.",
        ),
        lines(
            "KV sent",
            Query(f"sum by (pool, direction) (rate(stageline_port_bytes_total{R}{RATE})) / {CLOCK_RATE}", PORT),
            unit="Bps",
            text="Bytes per second of emulated time.",
        ),
        lines("KV in flight", Query(by_pool("stageline_kv_in_flight_bytes"), PORT), unit="bytes"),
        lines("Requests with KV in flight", Query(by_pool("stageline_kv_in_flight_requests"), PORT)),
        lines(
            "KV pinned at sources",
            Query(f"sum by (pool) (stageline_kv_pinned_bytes{R})", "{{pool}}"),
            unit="bytes",
            text="It grows without bound where the decode pool is too small, until prefill has no room.",
        ),
        lines(
            "Requests that wait",
            Query(f"sum by (pool) (stageline_hand_overs_waiting{R})", "{{pool}}, for room"),
            Query(f"sum by (pool) (stageline_kv_pinned_requests{R})", "{{pool}}, pinned"),
        ),
        lines(
            "First token to landing",
            *(quantile(q, "stageline_hand_over_seconds") for q in (0.5, 0.9, 0.99)),
            unit="s",
            text="Emulated. Nothing where decode replicas give the first token.",
        ),
        lines(
            "KV transfer",
            *(quantile(q, "stageline_kv_transfer_seconds") for q in (0.5, 0.9, 0.99)),
            unit="s",
            text="Emulated, from the start of the first transfer to the landing of the last.",
        ),
    ),
)  # fmt: skip

ALL = {"pipeline": PIPELINE, "cluster": CLUSTER, "emulator": EMULATOR, "fleet": FLEET}
