"""Azure LLM inference traces of 2023 and 2024.

Columns TIMESTAMP,ContextTokens,GeneratedTokens. Source: github.com/Azure/AzurePublicDataset. The files of 2023 write
`2023-11-16 18:17:03.9799600`, those of 2024 may add an offset, `2024-05-10 00:00:00.009930+00:00`.
"""

import re
from datetime import date

from stageline.units import NS_PER_S
from stageline.workload.formats.base import CsvFormat
from stageline.workload.rows import RowFields, TraceRow

_TIMESTAMP = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[ T]([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9])(?:\.([0-9]{1,9}))?"
    r"(?:Z|([+-])([01][0-9]|2[0-3]):?([0-5][0-9]))?"
)


class AzureFormat(CsvFormat):
    """An Azure trace."""

    name = "azure"
    columns = frozenset({"TIMESTAMP", "ContextTokens", "GeneratedTokens"})
    _day = ("", 0)  # the latest date and its ordinal: almost every row repeats it

    def parse(self, item: str) -> TraceRow:
        """See TraceFormat."""
        fields = self.fields(item)
        return TraceRow(self._time_ns(fields), fields.tokens("ContextTokens"), fields.tokens("GeneratedTokens"))

    def _time_ns(self, fields: RowFields) -> int:
        match = _TIMESTAMP.fullmatch(fields.text("TIMESTAMP"))
        if match is None:
            raise fields.bad(
                "TIMESTAMP", "not a time like 2023-11-16 18:17:03.9799600 (at most nine fractional digits)"
            )
        day, hours, minutes, seconds, fraction, sign, offset_hours, offset_minutes = match.groups()
        if day != self._day[0]:
            try:
                self._day = (day, date.fromisoformat(day).toordinal())
            except ValueError:
                raise fields.bad("TIMESTAMP", "no such day") from None
        total_s = self._day[1] * 86400 + int(hours) * 3600 + int(minutes) * 60 + int(seconds)
        if sign:
            offset_s = int(offset_hours) * 3600 + int(offset_minutes) * 60
            total_s += offset_s if sign == "-" else -offset_s
        return total_s * NS_PER_S + (int(fraction.ljust(9, "0")) if fraction else 0)
