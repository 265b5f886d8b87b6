"""ShareGPT: a JSON array of {id, conversations: [{from, value}, ...]}. Lengths only, no times.

The request is the first turn that is not a system turn, the reply is the turn after it (the convention of vLLM's
benchmarks); an item with no reply is left out and counted. A length is ceil(characters / 4) tokens, at least 1: a rule
that needs no tokenizer and is the same everywhere. The array is cut into its elements while it is read.
"""

import re
from collections.abc import Iterator

import msgspec

from stageline.errors import BadInput
from stageline.workload.formats.base import Format, Head
from stageline.workload.lines import MAX_LINE_BYTES, TraceFile
from stageline.workload.rows import SKIP, Row

CHARACTERS_PER_TOKEN = 4
_MARKS = re.compile(r'\\.|["\[\]{}\n]', re.DOTALL)


class _Turn(msgspec.Struct):
    speaker: str = msgspec.field(name="from")
    value: str


class _Item(msgspec.Struct):
    conversations: list[_Turn]


class ShareGptFormat(Format):
    """See the module."""

    name = "sharegpt"
    timed = False

    @classmethod
    def recognises(cls, head: Head) -> bool:
        """The only format that begins with an array."""
        return head.first == "["

    def items(self) -> Iterator[str]:
        """The texts of the array's elements; `file.line` is the line on which the element ends."""
        return _elements(self.file)

    def parse(self, item: str) -> Row | None:
        """One element."""
        try:
            turns = msgspec.json.decode(item, type=_Item).conversations
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            shown = item if len(item) <= 80 else item[:77] + "..."
            raise BadInput(self.file.where(), shown, f"not a conversation: {error}", SKIP) from None
        start = next((i for i, turn in enumerate(turns) if turn.speaker != "system"), len(turns))
        if start + 1 >= len(turns):
            return None
        return Row(0, tokens_of(turns[start].value), tokens_of(turns[start + 1].value))


def tokens_of(text: str) -> int:
    """ceil(characters / 4), at least 1."""
    return max(1, -(-len(text) // CHARACTERS_PER_TOKEN))


class _Cutter:
    """Cuts the array into the texts of its objects; holds only the object being read.

    `depth` counts open brackets outside strings: 1 is between the elements, 2 and more inside one.
    """

    def __init__(self, file: TraceFile) -> None:
        self._file = file
        self._depth = 0
        self._in_string = False
        self._buffer = ""  # from the end of the last element (or of the opening bracket) on
        self._scan = 0  # how much of the buffer has been looked at
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
        """The file has ended: so must the array."""
        if self._depth != -1 or self._buffer.strip():
            raise self.broken("text after the end of the array" if self._depth == -1 else "the array has no end")

    def broken(self, reason: str) -> BadInput:
        """The framing is damaged: rows after it can't be found, so skipping is no way out."""
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
    cutter = _Cutter(file)
    for chunk in file.chunks():
        yield from cutter.feed(chunk)
    cutter.finish()
