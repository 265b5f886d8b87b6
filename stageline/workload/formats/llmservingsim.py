"""Requests of a vLLM server as LLMServingSim records them: queued_ts (s, the server's clock), input_toks, output_toks.

Source: github.com/casys-kaist/LLMServingSim.
"""

from stageline.units import NS_PER_S
from stageline.workload.formats.base import JsonlFormat
from stageline.workload.rows import TraceRow


class LlmServingSimFormat(JsonlFormat):
    """A record of a benchmark. Requests arrive when the server queued them."""

    name = "llmservingsim"
    keys = frozenset({"queued_ts", "input_toks", "output_toks"})

    def parse(self, item: str) -> TraceRow:
        """See TraceFormat."""
        fields = self.fields(item)
        return TraceRow(
            fields.time_ns("queued_ts", NS_PER_S), fields.tokens("input_toks"), fields.tokens("output_toks")
        )
