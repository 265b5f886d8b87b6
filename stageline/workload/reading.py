"""From an open trace to its rows, with what is decided for zeros, failed and bad rows."""

from collections.abc import Iterator
from itertools import islice

import msgspec

from stageline.errors import BadInput
from stageline.workload.formats.base import Format
from stageline.workload.rows import Row, RowCounts


def rows_of(trace: Format, counts: RowCounts, *, skip_bad_rows: bool, limit: int | None = None) -> Iterator[Row]:
    """The accepted rows in file order, at most `limit`; `counts` grows as they go by.

    Zero output or prompt tokens are raised to 1 and counted: every request produces a token and computes one. Failed
    rows of formats that record failures are left out and counted. A bad row is an error, or counted and left out.
    """
    return islice(_accepted(trace, counts, skip_bad_rows), limit)


def _accepted(trace: Format, counts: RowCounts, skip_bad_rows: bool) -> Iterator[Row]:
    try:
        for item in trace.items():
            counts.read += 1
            row = _parsed(trace, item, counts, skip_bad_rows)
            if row is not None:
                counts.accepted += 1
                yield row if row.prompt_tokens and row.output_tokens else _raised(row, counts)
    finally:
        trace.file.close()


def _parsed(trace: Format, item: str, counts: RowCounts, skip_bad_rows: bool) -> Row | None:
    try:
        row = trace.parse(item)
    except BadInput:
        if not skip_bad_rows:
            raise
        counts.skipped_bad += 1
        return None
    counts.left_out_failed += row is None
    return row


def _raised(row: Row, counts: RowCounts) -> Row:
    counts.output_raised += row.output_tokens == 0
    counts.prompt_raised += row.prompt_tokens == 0
    return msgspec.structs.replace(
        row, prompt_tokens=max(1, row.prompt_tokens), output_tokens=max(1, row.output_tokens)
    )
