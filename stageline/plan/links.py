"""The links of a route: what crosses each visit boundary, and over which network."""

from collections.abc import Sequence
from itertools import pairwise

from stageline.hardware.device import Device, Network
from stageline.model.spec import ModelSpec
from stageline.plan.options import PlanOptions
from stageline.plan.place import Run
from stageline.plan.schema import Link

TOKEN_BYTES = 4  # a token id, to the first stage and back from the last


def links(spec: ModelSpec, device: Device, options: PlanOptions, runs: Sequence[Run]) -> tuple[Link, ...]:
    """Link v enters visit v; the last one returns to the router."""
    wide = options.stage_devices
    entering = [_link(device.scale_out, TOKEN_BYTES, options)]
    for before, run in pairwise(runs):
        network = _network(device, before.stage * wide, run.stage * wide)
        entering.append(_link(network, spec.boundary_bytes(run.layers[0]), options))
    return (*entering, _link(device.scale_out, TOKEN_BYTES, options))


def _network(device: Device, sender: int, receiver: int) -> Network:
    """Scale-up inside one domain, scale-out across; stages fill the domains in order."""
    up = device.scale_up
    return up if up and sender // up.devices == receiver // up.devices else device.scale_out


def _link(network: Network, token_bytes: int, options: PlanOptions) -> Link:
    latency, rate = options.hop_latency_ns, options.hop_bytes_per_s
    return Link(
        latency_ns=network.latency_ns if latency is None else latency,
        bytes_per_s=network.bytes_per_s if rate is None else rate,
        bytes_per_token=token_bytes,
        jitter_ns=options.hop_jitter_ns,
    )
