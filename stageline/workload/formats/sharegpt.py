"""ShareGPT: a JSON array of {id, conversations: [{from, value}, ...]}. Lengths only, no times.

The request is the first turn that is not a system turn, the reply is the turn after it, as in vLLM's benchmarks; an
item without a reply is left out and counted. A length is ceil(characters / 4) tokens, at least 1: this rule needs no
tokenizer and gives the same lengths everywhere. The array is split into its elements while it is read.
"""

import re
from collections.abc import Iterator

import msgspec

from stageline.errors import BadInput
from stageline.workload.formats.base import FileHead, TraceFormat
from stageline.workload.lines import MAX_LINE_BYTES, TraceFile
from stageline.workload.rows import SKIP, TraceRow

CHARACTERS_PER_TOKEN = 4
_MARKS = re.compile(r'\\.|["\[\]{}\n]', re.DOTALL)


class _Turn(msgspec.Struct):
    speaker: str = msgspec.field(name="from")
    value: str


class _Item(msgspec.Struct):
    conversations: list[_Turn]


class ShareGptFormat(TraceFormat):
    """A ShareGPT array."""

    name = "sharegpt"
    timed = False

    @classmethod
    def recognises(cls, head: FileHead) -> bool:
        """The only format whose file is an array."""
        return head.first == "["

    def items(self) -> Iterator[str]:
        """The texts of the array's elements; `file.line` is the line on which the element ends."""
        return _elements(self.file)

    def parse(self, item: str) -> TraceRow | None:
        """See TraceFormat."""
        try:
            turns = msgspec.json.decode(item, type=_Item).conversations
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            shown = item if len(item) <= 80 else item[:77] + "..."
            raise BadInput(self.file.where(), shown, f"not a conversation: {error}", SKIP) from None
        start = next((i for i, turn in enumerate(turns) if turn.speaker != "system"), len(turns))
        if start + 1 >= len(turns):
            return None
        return TraceRow(0, tokens_of(turns[start].value), tokens_of(turns[start + 1].value))


def tokens_of(text: str) -> int:
    """ceil(characters / 4), at least 1."""
    return max(1, -(-len(text) // CHARACTERS_PER_TOKEN))


class _Splitter:
    """Splits the array into the texts of its objects; buffers only the object being read.

    `_depth` counts open brackets outside strings: 0 before the array, 1 between its elements, 2 and more inside one, -1
    after the array.
    """

    def __init__(self, file: TraceFile) -> None:
        self._file = file
        self._depth = 0
        self._in_string = False
        self._buffer = ""  # text after the last element, or after the opening bracket
        self._scan = 0  # length of the buffer already scanned
        self._separator = ""  # what must stand before the next element
        file.line = 1

    def feed(self, chunk: str) -> Iterator[str]:
        """The elements that this chunk completes."""
        self._buffer += chunk
        while match := _MARKS.search(self._buffer, self._scan):
            mark, self._scan = match[0], match.end()
            if mark == "\n":
                self._file.line += 1
            elif mark == '"':
                self._in_string = not self._in_string
            elif not self._in_string and mark[0] != "\\":
                yield from self._bracket(mark)
        if len(self._buffer) > MAX_LINE_BYTES:
            raise self.broken(f"an element of more than {MAX_LINE_BYTES} characters")

    def finish(self) -> None:
        """Call at the end of the file. Raises BadInput unless the array has ended, too."""
        if self._depth != -1 or self._buffer.strip():
            raise self.broken("text after the end of the array" if self._depth == -1 else "the array has no end")

    def broken(self, reason: str) -> BadInput:
        """The error for damaged framing. --skip-bad-rows can't help: later elements can't be found."""
        return BadInput(self._file.where(), self._buffer[:80], reason, "give a complete ShareGPT JSON array")

    def _bracket(self, mark: str) -> Iterator[str]:
        if self._depth >= 2:
            self._depth += 1 if mark in "[{" else -1
            if self._depth == 1:
                yield self._take(self._scan)
                self._separator = ","
            return
        wanted, separator = (("[", ""), ("{]", self._separator))[self._depth] if self._depth >= 0 else ("", "")
        before = self._buffer[: self._scan - 1].strip()
        if mark not in wanted or before != ("" if mark == "]" else separator):
            raise self.broken("not an array of objects")
        self._depth = -1 if mark == "]" else self._depth + 1
        self._take(self._scan - (mark == "{"))
        self._scan = int(mark == "{")

    def _take(self, end: int) -> str:
        text, self._buffer, self._scan = self._buffer[:end], self._buffer[end:], 0
        return text


def _elements(file: TraceFile) -> Iterator[str]:
    splitter = _Splitter(file)
    for chunk in file.chunks():
        yield from splitter.feed(chunk)
    splitter.finish()
