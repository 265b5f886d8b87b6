"""All ways to divide N devices into replicas, stages, and the tensor, expert and context ranks of a stage."""

from collections.abc import Iterator

import msgspec

from stageline.model.ffn import Moe
from stageline.model.spec import ModelSpec
from stageline.plan.check_shape import ranks_divide


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """One division of the devices."""

    tp: int
    ep: int
    cp: int
    pp: int
    replicas: int

    @property
    def devices(self) -> int:
        """Devices of all replicas."""
        return max(self.tp, self.ep) * self.cp * self.pp * self.replicas

    @property
    def name(self) -> str:
        """The axes above 1: "tp4 pp2"; "tp1" if there are none."""
        axes = (("tp", self.tp), ("ep", self.ep), ("cp", self.cp), ("pp", self.pp), ("dp", self.replicas))
        return " ".join(f"{name}{n}" for name, n in axes if n > 1) or "tp1"

    def division(self) -> dict[str, int]:
        """As fields of `PlanOptions`, and as keywords of `plan_model`."""
        return {
            "devices": self.devices // self.replicas,
            "replicas": self.replicas,
            "tensor_parallel": self.tp,
            "expert_parallel": self.ep,
            "context_parallel": self.cp,
        }


def divisors(n: int) -> list[int]:
    """The divisors of n, ascending."""
    return [d for d in range(1, n + 1) if n % d == 0]


def shapes(spec: ModelSpec, devices: int, most_context: int = 1) -> Iterator[Shape]:
    """Every division of `devices` that the model allows, in a fixed order.

    - Tensor ranks split every layer evenly (`ranks_divide`).
    - Expert ranks are 1, the tensor ranks, or with one tensor rank any divisor of `devices`; all hold equally many
      experts.
    - Context ranks go up to `most_context`, and are 1 with attention replicas.
    """
    experts = {layer.ffn.experts for layer in spec.layers if isinstance(layer.ffn, Moe)}
    for tp in divisors(devices):
        split, spread = ranks_divide(spec, tp), ranks_divide(spec, tp, True)
        for ep in divisors(devices) if experts else [1]:
            if not (spread if ep > 1 else split):
                continue
            whole = ep == 1 or (ep % tp == 0 and all(n % ep == 0 for n in experts) and tp in (ep, 1))
            group = max(tp, ep)
            if not whole or devices % group:
                continue
            yield from _stages(spec, devices, tp, ep, most_context if ep <= tp else 1)


def _stages(spec: ModelSpec, devices: int, tp: int, ep: int, most_context: int) -> Iterator[Shape]:
    left = devices // max(tp, ep)
    for cp in divisors(left):
        if cp > most_context:
            break
        for pp in divisors(left // cp):
            if pp <= len(spec.layers):
                yield Shape(tp=tp, ep=ep, cp=cp, pp=pp, replicas=left // cp // pp)
