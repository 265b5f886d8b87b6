"""One row of a trace, the fields that it is read from, and counts of what became of rows."""

import re
from collections.abc import Mapping
from typing import Annotated

import msgspec

from stageline.engine.types import Request
from stageline.errors import BadInput
from stageline.units import MAX_TIME_NS, NS_PER_S, decimal_ns

MAX_TOKENS = 2**31 - 1
MAX_PRIORITY = 10**9 - 1  # nine digits, either sign
Priority = Annotated[int, msgspec.Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY)]
Identity = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]  # of a prompt's block, 64 bits on the wire
_INTEGER = re.compile(r"([0-9]+)(?:\.0*)?")  # pandas writes whole numbers as 1024.0
_MAX_DIGITS = 18


class TraceRow(msgspec.Struct, frozen=True, gc=False):
    """A request as the trace has it, without an index yet. `time_ns` is on the trace's own clock."""

    time_ns: int
    prompt_tokens: int
    output_tokens: int
    max_output_tokens: int | None = None
    priority: int = 0
    conversation: str = ""
    hash_ids: tuple[int, ...] = ()
    output_hash_ids: tuple[int, ...] = ()
    model: str = ""  # that it asks for; empty: the only one

    def request(self, index: int, arrival_ns: int) -> Request:
        """The request, once its index and emulated arrival are known."""
        return Request(
            index=index,
            arrival_ns=arrival_ns,
            prompt_tokens=self.prompt_tokens,
            output_tokens=self.output_tokens,
            max_output_tokens=self.max_output_tokens or self.output_tokens,
            priority=self.priority,
            conversation=self.conversation,
            hash_ids=self.hash_ids,
            output_hash_ids=self.output_hash_ids,
            model=self.model,
        )


class RowCounts(msgspec.Struct):
    """What became of a workload's rows; part of summary.json. Mutable: readers count as they stream."""

    read: int = 0  # data rows
    accepted: int = 0  # became requests
    skipped_bad: int = 0  # bad, left out under --skip-bad-rows
    left_out_failed: int = 0  # failed in the original system, or without a reply
    output_raised: int = 0  # zero output tokens, raised to 1
    prompt_raised: int = 0  # zero prompt tokens, raised to 1
    reordered: int = 0  # earlier than a row before them


class RowFields:
    """The texts of one row by column. Every accessor raises BadInput with file, line, column, value and reason."""

    __slots__ = ("_where", "values")

    def __init__(self, where: str, values: Mapping[str, str]) -> None:
        self._where = where
        self.values = values

    def bad(self, column: str, reason: str) -> BadInput:
        """The error of one column."""
        value = self.values.get(column)
        shown = value if value is None or len(value) <= 80 else value[:77] + "..."
        return BadInput(f"{self._where}, column {column}", shown, reason, SKIP)

    def text(self, column: str) -> str:
        """The column's text."""
        value = self.values.get(column)
        if value is None:
            raise self.bad(column, "missing")
        return value

    def tokens(self, column: str) -> int:
        """A whole number of tokens in [0, MAX_TOKENS]."""
        match = _INTEGER.fullmatch(self.text(column))
        if match is None:
            raise self.bad(column, "not a whole number of tokens")
        if len(match[1]) > _MAX_DIGITS or (value := int(match[1])) > MAX_TOKENS:
            raise self.bad(column, f"more than {MAX_TOKENS} tokens")
        return value

    def time_ns(self, column: str, unit_ns: int) -> int:
        """A decimal time in units of `unit_ns` → ns, exactly (finer than 1 ns: rounded half-even)."""
        value = decimal_ns(self.text(column), unit_ns)
        if value is None:
            raise self.bad(column, f"not a time between 0 and {MAX_TIME_NS // NS_PER_S} s")
        return value


SKIP = "correct the row, or leave such rows out with --skip-bad-rows"
