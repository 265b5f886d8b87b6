"""A group of weights: how many there are, and how many of them one token is multiplied with."""

from typing import NamedTuple

from stageline.model.formats import WeightClass


class Tensor(NamedTuple):
    """Weights of one class; `active` counts the parameters that one token is multiplied with."""

    name: str
    weight_class: WeightClass
    params: int
    active: int


def tensor(name: str, weight_class: WeightClass, params: int, active: int | None = None) -> Tensor:
    """By default all parameters are active, but none of a norm's, which only scale a vector."""
    if active is None:
        active = 0 if weight_class == "norms" else params
    return Tensor(name, weight_class, params, active)
