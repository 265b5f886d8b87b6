"""Reads the rows of an open trace, and decides what becomes of zero, failed and bad ones."""

from collections.abc import Iterator
from itertools import islice

import msgspec

from stageline.errors import BadInput
from stageline.workload.formats.base import TraceFormat
from stageline.workload.rows import RowCounts, TraceRow


def accepted_rows(
    trace: TraceFormat, counts: RowCounts, *, skip_bad_rows: bool, limit: int | None = None
) -> Iterator[TraceRow]:
    """The accepted rows in file order, at most `limit`; mutates `counts`.

    Zero output or prompt tokens are raised to 1 and counted: every request computes a token and produces one. Failed
    rows of formats that record failures are left out and counted. A bad row raises BadInput, or with `skip_bad_rows`
    is left out and counted.
    """
    return islice(_accepted(trace, counts, skip_bad_rows), limit)


def _accepted(trace: TraceFormat, counts: RowCounts, skip_bad_rows: bool) -> Iterator[TraceRow]:
    try:
        for item in trace.items():
            counts.read += 1
            row = _parsed(trace, item, counts, skip_bad_rows)
            if row is not None:
                counts.accepted += 1
                yield row if row.prompt_tokens and row.output_tokens else _raised(row, counts)
    finally:
        trace.file.close()


def _parsed(trace: TraceFormat, item: str, counts: RowCounts, skip_bad_rows: bool) -> TraceRow | None:
    try:
        row = trace.parse(item)
    except BadInput:
        if not skip_bad_rows:
            raise
        counts.skipped_bad += 1
        return None
    counts.left_out_failed += row is None
    return row


def _raised(row: TraceRow, counts: RowCounts) -> TraceRow:
    counts.output_raised += row.output_tokens == 0
    counts.prompt_raised += row.prompt_tokens == 0
    return msgspec.structs.replace(
        row, prompt_tokens=max(1, row.prompt_tokens), output_tokens=max(1, row.output_tokens)
    )
