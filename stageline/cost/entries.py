"""Cost entries: the folded coefficients from which a visit's service time is computed at run time.

A plan holds a few distinct entries that its visits share. An entry is data; `stageline.cost.service.compile_cost`
turns it into a `ServiceModel`.
"""

import msgspec


class Affine(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="affine", tag_field="kind"):
    """base + per new token + per KV token read, in integer ns. For closed forms, tests and measured stages."""

    base_ns: int
    token_ns: int = 0
    kv_token_ns: int = 0
    sampled_ns: int = 0
    imbalance_ns: int = 0  # a counter-based draw in [0, imbalance_ns] is added: stands for expert imbalance


CostEntry = Affine
