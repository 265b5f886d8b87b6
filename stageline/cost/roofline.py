"""The service model of a `Roofline` entry. A call is one table look-up and a few comparisons per kind of attention."""

from stageline.cost.entries import Roofline
from stageline.cost.load import Load
from stageline.cost.tables import TokenTable

AttentionRow = tuple[float, float, float, float, int]  # layers, decode_pair_ns, prefill_pair_ns, kv_ns, window_tokens


def attention_rows(entry: Roofline) -> list[AttentionRow]:
    """Coefficients of the full-attention operations, one row per group that has them."""
    found = [(float(g.layers), g.attention) for g in entry.groups if g.attention]
    return [(n, a.decode_pair_ns, a.prefill_pair_ns, a.kv_ns, a.window_tokens) for n, a in found]


def linear_rows(entry: Roofline) -> list[tuple[float, float, float]]:
    """(layers, token_ns, sequence_ns) of the linear-attention operations, one row per group that has them."""
    return [(float(g.layers), g.linear.token_ns, g.linear.sequence_ns) for g in entry.groups if g.linear]


class RooflineModel:
    """See `Roofline`. Monotone in every field of a Load."""

    uses_draw = False

    def __init__(self, entry: Roofline) -> None:
        self.entry = entry
        self.table = TokenTable(entry)
        self._values = self.table.values  # grows in place
        self._full = attention_rows(entry)
        self._linear = linear_rows(entry)
        self._head = (entry.head.row_ns, entry.head.weights_ns, entry.head.overhead_ns) if entry.head else None

    def service_ns(self, load: Load, draw: int = 0) -> int:
        """token table + linear attention + full attention (decode, then prefill) + head, rounded half-even once."""
        decode, prefill = load.decode_tokens, load.prefill_tokens
        tokens = decode + prefill
        values = self._values
        ns = values[tokens] if tokens < len(values) else self.table.at(tokens)
        for layers, token_ns, sequence_ns in self._linear:
            work = token_ns * tokens
            state = sequence_ns * (load.decode_sequences + load.prefill_sequences)
            ns += layers * (work if work > state else state)
        for row in self._full:
            ns += self._attention_ns(row, load)
        if self._head and load.sampled:
            work, weights = self._head[0] * load.sampled, self._head[1]
            ns += (work if work > weights else weights) + self._head[2]
        return round(ns) or 1

    @staticmethod
    def _attention_ns(row: AttentionRow, load: Load) -> float:
        layers, decode_pair_ns, prefill_pair_ns, kv_ns, window = row
        pairs, kv = load.decode_pairs, load.decode_kv_tokens
        prefill_pairs, prefill_kv = load.prefill_pairs, load.prefill_kv_tokens
        if window:
            pairs = min(pairs, load.decode_tokens * window)
            kv = min(kv, load.decode_sequences * window + load.decode_tokens)
            prefill_pairs = min(prefill_pairs, load.prefill_tokens * window)
            prefill_kv = min(prefill_kv, load.prefill_sequences * window + load.prefill_tokens)
        work, read = decode_pair_ns * pairs, kv_ns * kv
        ns = work if work > read else read
        work, read = prefill_pair_ns * prefill_pairs, kv_ns * prefill_kv
        return layers * (ns + (work if work > read else read))
