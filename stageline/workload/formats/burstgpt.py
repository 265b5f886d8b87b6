"""BurstGPT traces: Timestamp (s), Request tokens, Response tokens, and in newer copies Session ID and Elapsed time.

A row with no response tokens is a request that failed in the original system; it is left out and counted.
Source: github.com/HPMLL/BurstGPT.
"""

from stageline.units import NS_PER_S
from stageline.workload.formats.base import CsvFormat
from stageline.workload.rows import TraceRow


class BurstGptFormat(CsvFormat):
    """A BurstGPT trace."""

    name = "burstgpt"
    columns = frozenset({"Timestamp", "Request tokens", "Response tokens"})

    def parse(self, item: str) -> TraceRow | None:
        """See TraceFormat."""
        fields = self.fields(item)
        time_ns = fields.time_ns("Timestamp", NS_PER_S)
        prompt, output = fields.tokens("Request tokens"), fields.tokens("Response tokens")
        if output == 0:
            return None
        return TraceRow(time_ns, prompt, output, conversation=fields.values.get("Session ID", ""))
