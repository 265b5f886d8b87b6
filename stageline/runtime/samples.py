"""Samples read back from Prometheus' text format, as `text_format` writes it."""

import re
from collections.abc import Mapping

_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")

Key = tuple[str, tuple[tuple[str, str], ...]]


class Samples:
    """The samples of one process, by name and labels."""

    def __init__(self, values: Mapping[Key, float]) -> None:
        self._values = values
        self._by_name: dict[str, list[tuple[dict[str, str], float]]] = {}
        for (name, labels), value in values.items():
            self._by_name.setdefault(name, []).append((dict(labels), value))

    def of(self, name: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each sample of that name."""
        return self._by_name.get(name, [])

    def total(self, name: str, **labels: str) -> float:
        """Sum of the samples that carry these labels; 0 when there are none."""
        return sum(v for found, v in self.of(name) if labels.items() <= found.items())

    def since(self, before: "Samples | None") -> "Samples":
        """What was added since; where a value fell the counter has begun anew, and counts from zero."""
        old = before._values if before else {}
        return Samples({key: v - old.get(key, 0) if v >= old.get(key, 0) else v for key, v in self._values.items()})

    def quantile(self, name: str, share: float) -> float | None:
        """Of a histogram, all label sets added: the upper bound of the bucket that holds it; None without samples."""
        buckets: dict[float, float] = {}
        for labels, count in self.of(f"{name}_bucket"):
            bound = float(labels["le"])
            buckets[bound] = buckets.get(bound, 0) + count
        total = buckets.get(float("inf"), 0)
        if not total:
            return None
        return next(bound for bound, count in sorted(buckets.items()) if count >= share * total)


def parse(text: bytes) -> Samples:
    """The samples of an exposition. Raises ValueError for a line that is none."""
    values: dict[Key, float] = {}
    for line in text.decode().splitlines():
        if not line or line.startswith("#"):
            continue
        name_labels, _, value = line.rpartition(" ")
        name, _, labels = name_labels.partition("{")
        pairs = tuple((key, _ESCAPE.sub(_unescaped, text)) for key, text in _LABEL.findall(labels))
        values[name, pairs] = float(value)
    return Samples(values)


def _unescaped(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]
