"""Makes a profile from kernel timings; docs/planning.md, "Calibration", has the format.

A running maximum along every axis makes the times monotone, so that a larger batch never takes less time than a
smaller one.
"""

import csv
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from stageline.cost.measured import GridTable, curve_ns, segment
from stageline.cost.measured_entries import AttentionGrid, Curve
from stageline.cost.profile import Profile, Residual
from stageline.cost.tables import distinct_experts
from stageline.errors import BadInput

US = 1000.0
PER_LAYER = {"qkv_proj": 1, "rotary_emb": 1, "o_proj": 1, "layernorm": 2}
DENSE_FFN = {"gate_up_proj": 1, "act_fn": 1, "down_proj": 1}
QK_NORM = {"qk_norm": 1}
ONCE = frozenset({"embedding", "final_layernorm"})
PER_SEQUENCE = frozenset({"lm_head", "sampler"})
MOE_COLUMNS = ("tokens", "activated_experts", "time_us")
ALL_REDUCES = 2  # of a layer, over the tensor ranks


class LayerShape(NamedTuple):
    """What the timings have to hold: norms of queries and keys, routed experts, and the ranks that share a layer."""

    qk_norm: bool = False
    experts: int = 0  # 0: a dense FFN
    top_k: int = 0
    tensor_parallel: int = 1
    all_reduce_ns: Callable[[int], float] | None = None  # by tokens; the timings have none
    moe: str = ""  # the text of moe.csv, if there is one

    def weights(self) -> dict[str, int]:
        """How often a layer calls each operation of dense.csv."""
        return PER_LAYER | (QK_NORM if self.qk_norm else {}) | ({} if self.experts else DENSE_FFN)


AttentionPoints = dict[tuple[int, int, int, int], float]  # (chunk, history, sequences, kv) -> ns


def rows(text: str, columns: Sequence[str], place: str) -> Iterable[list[str]]:
    """The rows of a CSV that has exactly these columns. Raises BadInput."""
    reader = csv.reader(text.splitlines())
    header = next(reader, [])
    if header != list(columns):
        raise BadInput(place, ",".join(header), "wrong columns", f"expected {','.join(columns)}")
    for number, row in enumerate(reader, 2):
        if len(row) != len(columns):
            raise BadInput(f"{place}:{number}", ",".join(row), f"needs {len(columns)} fields")
        yield row


def _number(text: str, place: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e12:
        raise BadInput(place, text, "not a count or a time", "give a number, 0 or more")
    return value


def curves(text: str, key: str, place: str) -> dict[str, dict[int, float]]:
    """layer -> {tokens or sequences: ns}. Raises BadInput."""
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for layer, at, us in rows(text, ("layer", key, "time_us"), place):
        found[layer][int(_number(at, place))] = _number(us, place) * US
    return dict(found)


def attention_points(text: str, place: str) -> AttentionPoints:
    """The time of every measured mix of prefill and decode. Raises BadInput."""
    columns = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us")
    found: AttentionPoints = {}
    for row in rows(text, columns, place):
        chunk, history, sequences, kv = (int(_number(x, place)) for x in row[:4])
        found[chunk, history, sequences, kv] = _number(row[4], place) * US
    return found


def rising(values: Iterable[float]) -> tuple[float, ...]:
    """The running maximum."""
    out: list[float] = []
    for value in values:
        out.append(max(value, out[-1]) if out else value)
    return tuple(out)


def sum_curve(layers: Mapping[str, dict[int, float]], weights: Mapping[str, int], place: str) -> Curve:
    """The weighted sum of layers at the points that all of them have, as a running maximum. Raises BadInput."""
    missing = sorted(set(weights) - set(layers))
    if missing:
        raise BadInput(place, None, f"no timings of {', '.join(missing)}")
    at = sorted(set.intersection(*(set(layers[name]) for name in weights)))
    if len(at) < 2:
        raise BadInput(place, len(at), "needs at least two points that all layers share")
    return Curve(at=tuple(at), ns=rising(sum(n * layers[name][x] for name, n in weights.items()) for x in at))


def _powers_of_two(values: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted({v for v in values if v & (v - 1) == 0}))


def grid(points: AttentionPoints, place: str) -> AttentionGrid:
    """The product grid of all measured powers of two. Raises BadInput if one of its points was not measured.

    The KV axis has no effect without a decoding sequence, nor the history axis without a prefill chunk.
    """
    mixed = [p for p in points if p[0] and p[2]]
    if not mixed:
        raise BadInput(place, None, "needs points that mix prefill and decode")
    chunk = (0, *_powers_of_two(p[0] for p in mixed))
    history = (0, *_powers_of_two(p[1] for p in mixed if p[1]))
    sequences = (0, *_powers_of_two(p[2] for p in mixed))
    kv = _powers_of_two(p[3] for p in mixed)
    table: dict[tuple[int, int, int, int], float] = {}
    for c in chunk:
        for h in history:
            for s in sequences:
                best = 0.0
                for k in kv:
                    key = (c, h if c else 0, s, k if s else 0)
                    if key != (0, 0, 0, 0) and key not in points:
                        raise BadInput(place, str(key), "missing from the grid of powers of two")
                    best = max(best, points.get(key, 0.0), *_lower(table, (c, h, s, k), (chunk, history, sequences)))
                    table[c, h, s, k] = best
    return AttentionGrid(chunk=chunk, history=history, sequences=sequences, kv=kv, ns=tuple(table.values()))


def _lower(
    table: Mapping[tuple[int, int, int, int], float], key: tuple[int, int, int, int], axes: Sequence[Sequence[int]]
) -> list[float]:
    """Times of the next lower neighbours along the three slow axes."""
    out = [0.0]
    for axis, values in enumerate(axes):
        i = values.index(key[axis])
        if i:
            below = list(key)
            below[axis] = values[i - 1]
            out.append(table[below[0], below[1], below[2], below[3]])
    return out


def residual(of: str, pairs: Sequence[tuple[float, float]]) -> Residual:
    """Relative errors of (profile, measured) pairs of times, at least one of them."""
    errors = [ours / measured - 1 for ours, measured in pairs if measured > 0]
    absolute = sorted(abs(e) for e in errors)
    return Residual(
        of=of,
        points=len(errors),
        median=statistics.median(errors),
        p90_absolute=absolute[int(0.9 * (len(absolute) - 1))],
    )


def check_layers(found: Iterable[str], known: Iterable[str], place: str) -> None:
    """Refuse rows that nothing would use. Raises BadInput."""
    known = set(known)
    for name in found:
        if name not in known:
            reason = "not an operation of this model's layers"
            raise BadInput(f"{place}: column layer", name, reason, f"expected {', '.join(sorted(known))}")


def expert_times(text: str, shape: LayerShape, at: Iterable[int]) -> dict[int, float]:
    """Routed experts by tokens, at the expected number of distinct experts of uniform routing. Raises BadInput.

    Linear between the experts that were measured at the next smaller and larger numbers of tokens. Of files with a
    column `ep`, the rows of one rank.
    """
    columns = MOE_COLUMNS if text.startswith(MOE_COLUMNS[0]) else ("ep", *MOE_COLUMNS)
    by_tokens: dict[int, dict[int, float]] = defaultdict(dict)
    for *ep, tokens, active, us in rows(text, columns, "moe.csv"):
        if not ep or int(_number(ep[0], "moe.csv")) == 1:
            by_tokens[int(_number(tokens, "moe.csv"))][int(_number(active, "moe.csv"))] = _number(us, "moe.csv") * US
    if len(by_tokens) < 2:
        raise BadInput("moe.csv", len(by_tokens), "needs at least two numbers of tokens")
    distinct = distinct_experts(shape.experts, shape.top_k)
    points = {tokens: _at(times, distinct[min(tokens, len(distinct) - 1)]) for tokens, times in by_tokens.items()}
    curve = Curve(at=tuple(sorted(points)), ns=rising(points[x] for x in sorted(points)))
    return {tokens: curve_ns(curve, tokens) for tokens in at}


def _at(times: Mapping[int, float], active: float) -> float:
    """Between the measured numbers of experts; the last one for more."""
    axis = sorted(times)
    if len(axis) == 1:
        return times[axis[0]]
    i, f = segment(axis, min(active, axis[-1]))
    return times[axis[i]] + (times[axis[i + 1]] - times[axis[i]]) * f


def make_profile(
    dense: str,
    attention: str,
    per_sequence: str,
    *,
    name: str,
    model: str,
    device: str,
    source: str,
    shape: LayerShape = LayerShape(),  # noqa: B008  (immutable)
) -> Profile:
    """A profile from the texts of dense.csv, attention.csv and per_sequence.csv. Raises BadInput."""
    by_tokens, by_rows = (
        curves(dense, "tokens", "dense.csv"),
        curves(per_sequence, "sequences", "per_sequence.csv"),
    )
    weights = shape.weights()
    check_layers(by_tokens, {*weights, *ONCE}, "dense.csv")
    check_layers(by_rows, PER_SEQUENCE, "per_sequence.csv")
    if bool(shape.moe) != bool(shape.experts):
        reason = (
            f"{model} has no routed experts" if shape.moe else f"{model} has routed experts, and there is no moe.csv"
        )
        raise BadInput("moe.csv", None, reason, "give the timings of this model")
    points = attention_points(attention, "attention.csv")
    gemms = sum_curve(by_tokens, weights, "dense.csv")
    layer = _with_rest(gemms, shape)
    cells = grid(points, "attention.csv")
    norm = by_tokens.get("final_layernorm", {})
    with_norm = {**by_rows, "final_layernorm": {x: norm[x] for x in norm if x in by_rows.get("lm_head", ())}}
    table = GridTable(cells)
    off_grid = [(table.at(p), ns) for p, ns in points.items() if any(x and x & (x - 1) for x in p)]
    compared = {
        "a layer without attention": [
            (curve_ns(gemms, x), sum(n * by_tokens[op][x] for op, n in weights.items())) for x in gemms.at
        ],
        "attention between the grid points": off_grid,
    }
    return Profile(
        name=name,
        model=model,
        device=device,
        layer=layer,
        attention=cells,
        embedding=sum_curve({"embedding": by_tokens.get("embedding", {})}, {"embedding": 1}, "dense.csv"),
        head=sum_curve(with_norm, {"lm_head": 1, "sampler": 1, "final_layernorm": 1}, "per_sequence.csv"),
        tensor_parallel=shape.tensor_parallel,
        residuals=tuple(residual(of, pairs) for of, pairs in compared.items() if pairs),
        source=source,
    )


def _with_rest(dense: Curve, shape: LayerShape) -> Curve:
    """A layer with its routed experts, and with the all-reduces that the timings of a rank lack."""
    experts = expert_times(shape.moe, shape, dense.at) if shape.moe else {}
    reduce_ns = shape.all_reduce_ns or (lambda tokens: 0.0)
    parts = (ns + experts.get(x, 0.0) + ALL_REDUCES * reduce_ns(x) for x, ns in zip(dense.at, dense.ns, strict=True))
    return Curve(at=dense.at, ns=rising(parts))
