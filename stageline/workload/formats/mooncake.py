"""Mooncake traces: timestamp (ms), input_length, output_length, hash_ids (chained blocks of 512 tokens).

Source: github.com/kvcache-ai/Mooncake.
"""

from stageline.workload.formats.base import JsonlFormat, hash_ids
from stageline.workload.rows import TraceRow


class MooncakeFormat(JsonlFormat):
    """A Mooncake trace."""

    name = "mooncake"
    keys = frozenset({"timestamp", "input_length", "output_length"})
    foreign_keys = frozenset({"chat_id"})
    hash_block_tokens = 512

    def parse(self, item: str) -> TraceRow:
        """See TraceFormat."""
        fields = self.fields(item)
        time_ns = fields.time_ns("timestamp", 1_000_000)
        prompt, output = fields.tokens("input_length"), fields.tokens("output_length")
        return TraceRow(time_ns, prompt, output, hash_ids=hash_ids(fields))
