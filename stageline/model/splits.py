"""What tensor ranks split of a layer, and which numbers of ranks split it evenly."""

from typing import NamedTuple

from stageline.model.formats import WeightClass


class Split(NamedTuple):
    """`size` heads, groups or columns, which ranks must divide."""

    what: str  # "heads", "KV heads", "FFN width"
    size: int
    weight_class: WeightClass
    columns: int = 0  # of a weight matrix, per head or group, that must stay whole blocks of its format; 0: any
    copied: bool = False  # more ranks than `size` hold copies, if `size` divides them
    spread: bool = False  # not split where experts are spread

    def even(self, ranks: int) -> bool:
        """Whether `ranks` divide the size, or, where ranks may hold copies, the size divides `ranks`."""
        return self.size % ranks == 0 or (self.copied and ranks % self.size == 0)

    def part(self, ranks: int) -> int:
        """Columns of one rank."""
        return self.size * self.columns // ranks
