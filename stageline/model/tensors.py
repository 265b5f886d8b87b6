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
    """All parameters are active unless said otherwise; those of norms, which only scale a vector, never are."""
    if active is None:
        active = 0 if weight_class == "norms" else params
    return Tensor(name, weight_class, params, active)
