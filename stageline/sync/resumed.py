"""What is done again after a death must go as before: an Observer that compares the attempts (L8')."""

from array import array

import msgspec

from stageline.engine.types import Observer, RequestRecord
from stageline.errors import LawBroken

_MASK = (1 << 64) - 1


class Resumed:
    """An Observer that compares each attempt with what the ones before have shown of every request.

    It passes on what is new. Requests that were in the system when an attempt broke off are told to `observer` only by
    `give_up`: the next attempt may finish them. It keeps 8 bytes per request that has ended.
    """

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._shown: dict[int, list[int]] = {}  # tokens of a request, and what tells their times from others
        self._ended: array[int] = array("Q")  # the same of its end, by index; 0: it has not ended
        self._now: dict[int, list[int]] = {}  # of this attempt
        self._broken: list[RequestRecord] = []

    def begin(self) -> None:
        """The next attempt."""
        self._now.clear()
        self._broken.clear()

    def give_up(self) -> None:
        """There is no further attempt."""
        for record in self._broken:
            self._observer.request(record)

    def token(self, index: int, now_ns: int, since_ns: int | None) -> None:
        """See Observer. Raises LawBroken for a token that came at another time before."""
        now = self._now.setdefault(index, [0, 0])
        now[0] += 1
        now[1] = _mixed(now[1], now_ns)
        if self._has_ended(index):
            return
        shown = self._shown.setdefault(index, [0, 0])
        if now[0] > shown[0]:
            shown[:] = now
            self._observer.token(index, now_ns, since_ns)
        elif now[0] == shown[0] and now[1] != shown[1]:
            raise _another(index)

    def request(self, record: RequestRecord) -> None:
        """See Observer. Raises LawBroken for a request that ended in another way before."""
        if record.outcome == "incomplete":
            self._broken.append(record)
            return
        index, (tokens, times) = record.index, self._now.pop(record.index, (0, 0))
        end = _mixed(_mixed(tokens, times), hash(msgspec.structs.astuple(record))) or 1
        if self._has_ended(index):
            if end != self._ended[index]:
                raise _another(index)
            return
        if self._shown.pop(index, [0])[0] > tokens:
            raise _another(index)
        self._ended.extend([0] * (index + 1 - len(self._ended)))
        self._ended[index] = end
        self._observer.request(record)

    def _has_ended(self, index: int) -> bool:
        return index < len(self._ended) and self._ended[index] != 0


def _mixed(seed: int, value: int) -> int:
    return (seed * 0x9E3779B97F4A7C15 + (value ^ (value >> 31)) * 0xBF58476D1CE4E5B9 + 1) & _MASK


def _another(index: int) -> LawBroken:
    return LawBroken(f"L8': request {index} went another way when the run was done again")
