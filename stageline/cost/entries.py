"""Cost entries: the folded coefficients from which a visit's service time is computed at run time.

A plan holds a few distinct entries that its visits share. An entry is data; `stageline.cost.service.compile_cost`
turns it into a `ServiceModel`. Coefficients are times in ns (doubles): FLOPs and bytes were divided by the rates that
are reached when the plan was made, so that a run needs only + - * / and comparisons.
"""

import msgspec

from stageline.cost.measured_entries import MeasuredCost


class Affine(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="affine", tag_field="kind"):
    """base + per new token + per KV token read, in integer ns. For closed forms, and for stages measured elsewhere."""

    base_ns: int
    token_ns: int = 0
    kv_token_ns: int = 0
    sampled_ns: int = 0
    imbalance_ns: int = 0  # a counter-based draw in [0, imbalance_ns] is added: stands for expert imbalance


class CostStruct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Parts of an entry refuse unknown fields."""


class Gemm(CostStruct, frozen=True):
    """Weights read once per step: max(token_ns * tokens, weights_ns)."""

    token_ns: float
    weights_ns: float


class Experts(CostStruct, frozen=True):
    """Routed experts: max(token_ns * tokens, expert_ns * distinct), distinct = N * (1 - ((N - k) / N) ** tokens).

    The expected number of distinct experts that a step reads, exact under uniform routing and an upper bound otherwise.
    """

    experts: int
    top_k: int
    token_ns: float  # all top_k experts of a token
    expert_ns: float  # reading one expert's weights
    imbalance: tuple[float, ...] = ()  # ascending, >= 1: a draw picks one, the most loaded rank has so much more work


class Ring(CostStruct, frozen=True):
    """Context parallelism of prefill: what passes round the ring, and when which.

    KV passes if new tokens >= kv_threshold_tokens or new >= kv_share x all tokens, else queries do.
    Time = max(attention, what passes) + steps_ns.
    """

    kv_token_ns: float  # per token of KV
    query_token_ns: float  # per new token: queries round the ring, partial outputs back
    steps_ns: float  # latencies and overheads of all steps
    kv_threshold_tokens: float
    kv_share: float
    decode_ns: float = 0.0  # gathering queries and merging partial outputs of a decode step


class FullAttention(CostStruct, frozen=True):
    """KV read against query-key pairs, decode and prefill apart: max(pair_ns * pairs, kv_ns * kv_tokens) each.

    A sliding window caps both: pairs at tokens * window, KV at sequences * window + tokens.
    """

    decode_pair_ns: float
    prefill_pair_ns: float
    kv_ns: float
    window_tokens: int = 0
    ring: Ring | None = None


class LinearAttention(CostStruct, frozen=True):
    """State read and written once per sequence and step: max(token_ns * tokens, sequence_ns * sequences)."""

    token_ns: float
    sequence_ns: float


class CollectiveCost(CostStruct, frozen=True):
    """One way of a collective: latency_ns + token_ns x tokens."""

    latency_ns: float
    token_ns: float


class Collective(CostStruct, frozen=True):
    """The quickest of its ways."""

    ways: tuple[CollectiveCost, ...]


class LayerGroup(CostStruct, frozen=True):
    """`layers` layers of one kind: the sum of its operations, plus an overhead, per layer."""

    layers: int
    overhead_ns: float
    gemms: tuple[Gemm, ...] = ()
    experts: Experts | None = None
    attention: FullAttention | None = None
    linear: LinearAttention | None = None
    transfer_token_ns: float = 0.0  # per token and layer, whatever else happens
    collectives: tuple[Collective, ...] = ()


class LmHead(CostStruct, frozen=True):
    """The LM head, which sees sampled rows only: max(row_ns * sampled, weights_ns) + overhead, 0 without a row."""

    row_ns: float
    weights_ns: float
    overhead_ns: float = 0.0


class Roofline(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="roofline", tag_field="kind"):
    """sum over groups of layers x (sum over operations of max(compute, memory) + overhead), + head; at least 1 ns.

    Prefill tokens are split over `context_ranks`. With `overlap` two half batches may take turns: the
    lesser of the whole and max(work of the halves, collectives of the halves).
    The host: max(step, floor_ns) + sequence_ns x sequences + step_ns.
    """

    groups: tuple[LayerGroup, ...]
    head: LmHead | None = None
    context_ranks: int = 1
    overlap: bool = False
    floor_ns: float = 0.0
    sequence_ns: float = 0.0
    step_ns: float = 0.0


CostEntry = Affine | Roofline | MeasuredCost
