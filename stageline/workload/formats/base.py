"""Base classes of trace formats: how a file is recognised, split into rows, and parsed."""

import csv
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar

import msgspec

from stageline.errors import BadInput
from stageline.workload.lines import TraceFile
from stageline.workload.rows import SKIP, Identity, RowFields, TraceRow


class TraceFormat(ABC):
    """An open trace. Each format is one class in one module; `registry` lists them."""

    name: ClassVar[str]
    timed: ClassVar[bool] = True  # rows have arrival times
    rebased: ClassVar[bool] = True  # times count from the earliest row; False: they already are emulated times
    hash_block_tokens: int = 0  # tokens that one hash id stands for; 0: no hash ids

    def __init__(self, file: TraceFile) -> None:
        self.file = file

    @classmethod
    @abstractmethod
    def recognises(cls, head: "FileHead") -> bool:
        """Whether a file with this beginning is in this format."""

    def items(self) -> Iterator[str]:
        """The texts of the rows in file order, without blank lines."""
        return (line for line in self.file.lines() if line and not line.isspace())

    @abstractmethod
    def parse(self, item: str) -> TraceRow | None:
        """Parses one row. None: it is not a request (it failed, or has no reply). Raises BadInput."""


class FileHead(msgspec.Struct, frozen=True):
    """What a format is recognised by: first character, CSV header, keys of the first JSON objects."""

    first: str
    columns: frozenset[str]
    keys: frozenset[str]

    @classmethod
    def of(cls, text: str) -> "FileHead":
        """Parses the beginning of a file."""
        lines = [line for line in text.splitlines()[:20] if line.strip()]
        first = text.lstrip()[:1]
        columns = frozenset(_cells(lines[0])) if lines and first not in "{[" else frozenset[str]()
        keys: set[str] = set()
        for line in lines if first == "{" else ():
            keys.update(_object(line) or ())
        return cls(first=first, columns=columns, keys=frozenset(keys))


class CsvFormat(TraceFormat):
    """A CSV with a header. Rows are lines; a quoted cell may hold commas but no line breaks."""

    columns: ClassVar[frozenset[str]]  # required

    @classmethod
    def recognises(cls, head: FileHead) -> bool:
        """By the names in the header."""
        return cls.columns <= head.columns

    def items(self) -> Iterator[str]:
        """Reads the header, then yields the data lines."""
        lines = super().items()
        self._header = _cells(next(lines))
        return lines

    def fields(self, item: str) -> RowFields:
        """The cells of a row by column."""
        cells = _cells(item)
        if len(cells) != len(self._header):
            reason = f"{len(cells)} cells where the header has {len(self._header)}"
            raise BadInput(self.file.where(), item[:80], reason, SKIP)
        return RowFields(self.file.where(), dict(zip(self._header, cells, strict=True)))


class JsonlFormat(TraceFormat):
    """One JSON object per line. Numbers stay texts, so that no digit is lost to a double."""

    keys: ClassVar[frozenset[str]]
    foreign_keys: ClassVar[frozenset[str]] = frozenset()  # keys that only another format has

    @classmethod
    def recognises(cls, head: FileHead) -> bool:
        """By the keys of the first objects."""
        return head.first == "{" and cls.keys <= head.keys and not cls.foreign_keys & head.keys

    def fields(self, item: str) -> RowFields:
        """The object's members by name, each as its JSON text."""
        values = _object(item)
        if values is None:
            raise BadInput(self.file.where(), item[:80], "not a JSON object", SKIP)
        return RowFields(self.file.where(), values)


def hash_ids(fields: RowFields, member: str = "hash_ids") -> tuple[int, ...]:
    """An optional member with identities of blocks, in order. Raises BadInput."""
    text = fields.values.get(member)
    if text is None:
        return ()
    try:
        return _IDENTITIES.decode(text)
    except (msgspec.MsgspecError, ValueError):
        raise fields.bad(member, "not a list of 64-bit integers") from None


def name_text(fields: RowFields, column: str) -> str:
    """A name, which is a string or an integer, as text. Raises BadInput."""
    text = fields.text(column)
    try:
        return str(msgspec.json.decode(text, type=str | int))
    except (msgspec.MsgspecError, ValueError):
        raise fields.bad(column, "neither a string nor an integer") from None


_IDENTITIES = msgspec.json.Decoder(tuple[Identity, ...])
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _object(text: str) -> dict[str, str] | None:
    try:
        return {key: bytes(raw).decode() for key, raw in _OBJECT.decode(text).items()}
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _cells(line: str) -> list[str]:
    if '"' not in line:
        return [cell.strip() for cell in line.split(",")]
    try:
        return [cell.strip() for row in csv.reader([line]) for cell in row]
    except csv.Error:
        return [line]
