"""Cost entries: the coefficients from which a run computes the service time of a visit.

A plan holds each distinct entry once, and its visits refer to them. An entry is data;
`stageline.cost.service.compile_cost` makes a `ServiceModel` of it. Coefficients are ns as doubles: the planner has
divided FLOPs and bytes by the rates that the device reaches, so that a run needs only + - * / and comparisons.
"""

import msgspec
from msgspec import UNSET, UnsetType

from stageline.cost.measured_entries import Curve, MeasuredCost, Surface


class Affine(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="affine", tag_field="kind"):
    """base_ns + token_ns x new tokens + kv_token_ns x KV tokens read + sampled_ns x sampled rows, in integer ns.

    For closed forms in tests, and for stages that were measured elsewhere.
    """

    base_ns: int
    token_ns: int = 0
    kv_token_ns: int = 0
    sampled_ns: int = 0
    imbalance_ns: int = 0  # adds a counter-based draw in [0, imbalance_ns], in place of expert imbalance


class CostStruct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The base of an entry's parts, which refuse unknown fields."""


class Gemm(CostStruct, frozen=True):
    """A matrix multiplication that reads its weights once per step: max(token_ns x tokens, weights_ns).

    With `unhidden`, that share of the lesser of the two is added.
    """

    token_ns: float
    weights_ns: float
    unhidden: float | UnsetType = UNSET


class Experts(CostStruct, frozen=True):
    """Routed experts: max(token_ns x tokens, expert_ns x distinct), distinct = N (1 - ((N - k) / N)^tokens).

    `distinct` is the expected number of experts whose weights a step reads, N = experts, k = top_k: exact for uniform
    routing, an upper bound otherwise. Of experts that are `spread` over R ranks, the one that reads most sets the pace:
    R x its expected number; see `distinct_experts`.
    """

    experts: int
    top_k: int
    token_ns: float  # compute of all top_k experts of a token
    expert_ns: float  # reading one expert's weights
    unhidden: float | UnsetType = UNSET  # share of the lesser of compute and reading that is added
    curve: Curve | UnsetType = UNSET  # measured times by tokens, in place of the formula
    imbalance: tuple[float, ...] = ()  # ascending, >= 1: work of the busiest rank / mean; a draw picks one
    spread: int | UnsetType = UNSET  # ranks that the experts are spread over, whole


class Ring(CostStruct, frozen=True):
    """Ring attention of context-parallel prefill: max(attention, transfer) + steps_ns.

    KV goes round the ring if new tokens >= kv_threshold_tokens or >= kv_share x all tokens, else queries do.
    """

    kv_token_ns: float  # per token of KV
    query_token_ns: float  # per new token: queries round the ring, partial outputs back
    steps_ns: float  # latencies and overheads of all ring steps
    kv_threshold_tokens: float
    kv_share: float  # new tokens / all tokens
    decode_ns: float = 0.0  # of a decode step: pass queries, attend again, merge partial outputs


class Spill(CostStruct, frozen=True):
    """Traffic that the cache does not hold: token_ns x tokens, if there are more than held_tokens."""

    held_tokens: float
    token_ns: float


class Phase(CostStruct, frozen=True):
    """An attention kernel of one phase, decode or prefill, as measured; 0 without a sequence in that phase.

    fixed_ns + max(pairs, KV) + unhidden x min(pairs, KV) + token_ns x tokens + sequence_ns x sequences
    + span_ns x KV tokens / sequences + depth_tokens x pairs / tokens, where pairs = pair_ns x query-key pairs and
    KV = kv_ns x KV tokens. Linear attention has neither; its span is tokens / sequences. `spill` is added.
    """

    fixed_ns: float
    kv_ns: float = 0.0
    unhidden: float = 0.0
    token_ns: float = 0.0
    sequence_ns: float = 0.0
    span_ns: float = 0.0
    depth_tokens: float = 0.0
    spill: Spill | UnsetType = UNSET
    surface: Surface | UnsetType = UNSET  # measured times, in place of everything else


class FullAttention(CostStruct, frozen=True):
    """Decode and prefill each take max(pair_ns x query-key pairs, kv_ns x KV tokens read); their sum counts.

    A window of the tokens that a query reads caps both: pairs at tokens x window, KV at sequences x window + tokens;
    pairs of prefill at tokens x (window + window_tile). A
    `Phase` takes the place of that maximum, and its `kv_ns` that of the entry's.
    """

    decode_pair_ns: float
    prefill_pair_ns: float
    kv_ns: float
    window_tokens: int = 0
    window_tile: int | UnsetType = UNSET
    ring: Ring | None = None
    decode: Phase | UnsetType = UNSET
    prefill: Phase | UnsetType = UNSET


class LinearAttention(CostStruct, frozen=True):
    """A step reads and writes each sequence's state once: max(token_ns x tokens, sequence_ns x sequences).

    With phases, decode and prefill each take their own time instead.
    """

    token_ns: float
    sequence_ns: float
    decode: Phase | UnsetType = UNSET
    prefill: Phase | UnsetType = UNSET


class CollectiveCost(CostStruct, frozen=True):
    """One algorithm of a collective: latency_ns + token_ns x tokens."""

    latency_ns: float
    token_ns: float


class Collective(CostStruct, frozen=True):
    """The fastest of its algorithms, the `ways`, at each number of tokens; or measured times by tokens."""

    ways: tuple[CollectiveCost, ...]
    curve: Curve | UnsetType = UNSET


class LayerGroup(CostStruct, frozen=True):
    """`layers` layers of one kind; each takes the sum of its operations + overhead_ns."""

    layers: int
    overhead_ns: float
    gemms: tuple[Gemm, ...] = ()
    experts: Experts | None = None
    attention: FullAttention | None = None
    linear: LinearAttention | None = None
    transfer_token_ns: float = 0.0  # per token and layer, added to everything else
    collectives: tuple[Collective, ...] = ()
    more_attention: tuple[FullAttention, ...] | UnsetType = UNSET  # over the layer's other caches: indexers, windows
    work: tuple[Curve, ...] | UnsetType = UNSET  # measured times of one layer by tokens, added


class LmHead(CostStruct, frozen=True):
    """The LM head of the sampled rows: max(row_ns x sampled, weights_ns) + overhead_ns; 0 without a row.

    A curve, of measured times by rows, is added.
    """

    row_ns: float
    weights_ns: float
    overhead_ns: float = 0.0
    curve: Curve | UnsetType = UNSET


class Graphs(CostStruct, frozen=True):
    """CUDA graphs, captured at some numbers of new tokens of one rank.

    A step that a graph holds takes what depends on tokens alone at the captured size. Any other runs eager: at least
    eager_ns on the devices, in which the host launches the kernels.
    """

    sizes: tuple[int, ...]  # ascending; none: every step runs eager
    eager_ns: float
    decode_only: bool = False  # a microbatch with a prefill runs eager
    exact: bool = False  # a step between two sizes runs eager, it is not padded


class Drafter(CostStruct, frozen=True):
    """What drafts tokens beside the last layers: an MTP layer, an EAGLE head or a draft model.

    With k = ceil(decode tokens / decode sequences) - 1 drafts per sequence: one pass over all new tokens, then k - 1 of
    one token per decoding sequence.
    """

    groups: tuple[LayerGroup, ...]
    head: LmHead


class Roofline(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="roofline", tag_field="kind"):
    """Sum over groups of layers x (sum over operations of max(compute, memory) + overhead), + head; at least 1 ns.

    Prefill tokens are split over `context_ranks`. With `overlap` two half batches may alternate: a step takes the
    lesser of the whole batch and max(work of both halves, collectives of both halves).
    The host adds: max(step, floor_ns) + sequence_ns x sequences + step_ns; with `host_hidden` it is
    max(step, floor_ns, sequence_ns x sequences + step_ns). `ranks` ranks of data-parallel attention step together
    (see `stageline.cost.together`); the host's time is that of one rank's sequences.
    """

    groups: tuple[LayerGroup, ...]
    head: LmHead | None = None
    context_ranks: int = 1
    overlap: bool = False
    floor_ns: float = 0.0
    sequence_ns: float = 0.0
    step_ns: float = 0.0
    host_hidden: bool | UnsetType = UNSET
    ranks: int | UnsetType = UNSET  # absent: 1
    graphs: Graphs | UnsetType = UNSET  # absent: neither padding nor launches count
    drafter: Drafter | UnsetType = UNSET


CostEntry = Affine | Roofline | MeasuredCost
