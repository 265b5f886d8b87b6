"""One group of weights: how many there are and how many of them a token uses."""

from typing import NamedTuple

from stageline.model.formats import WeightClass


class Tensor(NamedTuple):
    """Parameters of one class; `active` are those that one token multiplies with."""

    name: str
    weight_class: WeightClass
    params: int
    active: int


def tensor(name: str, weight_class: WeightClass, params: int, active: int | None = None) -> Tensor:
    """A tensor whose parameters are all active, unless said otherwise."""
    return Tensor(name, weight_class, params, params if active is None else active)
