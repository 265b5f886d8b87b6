"""Stageline's own JSONL, for other tools to write.

Members: arrival_ns, prompt_tokens, output_tokens; optional max_output_tokens, priority, session (the user's
conversation), hash_ids of the prompt's blocks, output_hash_ids of those that the answer completes (left out: as the
next row of the session tells), model (that it asks for in a fleet of several), and hash_block_tokens, the tokens that
one hash id stands for, the same in every row that has it. Arrivals are emulated times and stay as they are.
"""

import re

import msgspec

from stageline.errors import BadInput
from stageline.workload.answers import AnswerBlocks
from stageline.workload.formats.base import JsonlFormat, hash_ids
from stageline.workload.lines import TraceFile
from stageline.workload.rows import SKIP, RowFields, TraceRow

_STATED = re.compile(r'"hash_block_tokens"\s*:\s*([1-9][0-9]{0,8})\s*[,}]')
_PRIORITY = re.compile(r"-?[0-9]{1,9}")


class NativeFormat(JsonlFormat):
    """Rows of Stageline's own format. Unknown members are refused, so that a misspelt one is not silently ignored."""

    name = "stageline"
    keys = frozenset({"arrival_ns", "prompt_tokens", "output_tokens"})
    rebased = False
    _known = keys | {
        "max_output_tokens",
        "priority",
        "session",
        "hash_ids",
        "output_hash_ids",
        "hash_block_tokens",
        "model",
    }

    def __init__(self, file: TraceFile) -> None:
        super().__init__(file)
        stated = _STATED.search(file.head().partition("\n")[0])
        self.hash_block_tokens = int(stated[1]) if stated else 0
        self._answers = AnswerBlocks(self.hash_block_tokens)

    def parse(self, item: str) -> TraceRow:
        """See TraceFormat."""
        fields = self.fields(item)
        if unknown := fields.values.keys() - self._known:
            raise BadInput(f"{self.file.where()}, column {min(unknown)}", None, "unknown member", SKIP)
        if "hash_block_tokens" in fields.values and fields.tokens("hash_block_tokens") != self.hash_block_tokens:
            raise fields.bad("hash_block_tokens", f"differs from the first row ({self.hash_block_tokens or 'none'})")
        output = fields.tokens("output_tokens")
        row = TraceRow(
            fields.time_ns("arrival_ns", 1),
            fields.tokens("prompt_tokens"),
            output,
            max_output_tokens=_max_output(fields, output),
            priority=_priority(fields),
            conversation=_string(fields, "session"),
            hash_ids=hash_ids(fields),
            output_hash_ids=hash_ids(fields, "output_hash_ids"),
            model=_string(fields, "model"),
        )
        return row if "output_hash_ids" in fields.values else self._answers.named(row)


def _max_output(fields: RowFields, output: int) -> int | None:
    if "max_output_tokens" not in fields.values:
        return None
    value = fields.tokens("max_output_tokens")
    if value < max(output, 1):
        raise fields.bad("max_output_tokens", f"less than output_tokens ({max(output, 1)})")
    return value


def _priority(fields: RowFields) -> int:
    text = fields.values.get("priority", "0")
    if not _PRIORITY.fullmatch(text):
        raise fields.bad("priority", "not an integer of at most nine digits")
    return int(text)


def _string(fields: RowFields, column: str) -> str:
    try:
        return msgspec.json.decode(fields.values.get(column, '""'), type=str)
    except (msgspec.MsgspecError, ValueError):
        raise fields.bad(column, "not a string") from None
