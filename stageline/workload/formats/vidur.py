"""Vidur traces: arrived_at (s), num_prefill_tokens, num_decode_tokens. Source: github.com/microsoft/vidur."""

from stageline.units import NS_PER_S
from stageline.workload.formats.base import CsvFormat
from stageline.workload.rows import TraceRow


class VidurFormat(CsvFormat):
    """A Vidur trace."""

    name = "vidur"
    columns = frozenset({"arrived_at", "num_prefill_tokens", "num_decode_tokens"})

    def parse(self, item: str) -> TraceRow:
        """See TraceFormat."""
        fields = self.fields(item)
        time_ns = fields.time_ns("arrived_at", NS_PER_S)
        return TraceRow(time_ns, fields.tokens("num_prefill_tokens"), fields.tokens("num_decode_tokens"))
