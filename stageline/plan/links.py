"""The links of a route: the bytes that cross each visit boundary, and the network that carries them."""

from collections.abc import Sequence
from itertools import pairwise

from stageline.cost.topology import domain_devices, joined
from stageline.hardware.device import Device
from stageline.hardware.networks import Network
from stageline.model.spec import ModelSpec
from stageline.plan.options import PlanOptions
from stageline.plan.placement import LayerRun
from stageline.plan.schema import LinkPlan

TOKEN_BYTES = 4  # of a token id, to the first stage and back from the last


def links(spec: ModelSpec, device: Device, options: PlanOptions, runs: Sequence[LayerRun]) -> tuple[LinkPlan, ...]:
    """One link per visit boundary: link v enters visit v, the last one returns to the router."""
    first, last = (options.device_of(run.stage, device) for run in (runs[0], runs[-1]))
    entering = [_link(first.scale_out, TOKEN_BYTES, options)]
    for before, run in pairwise(runs):
        sender, receiver = options.device_of(before.stage, device), options.device_of(run.stage, device)
        far = leaves_domain(device, options, before.stage, run.stage)
        network = sender.scale_up if sender.scale_up and not far else _between(sender, receiver)
        entering.append(_link(network, spec.boundary_bytes(run.layers[0]), options))
    return (*entering, _link(last.scale_out, TOKEN_BYTES, options))


def _between(sender: Device, receiver: Device) -> Network:
    """The network across nodes; of devices of two kinds the lower bandwidth and the longer latency."""
    one, other = sender.scale_out, receiver.scale_out
    return Network(
        bytes_per_s=min(one.bytes_per_s, other.bytes_per_s), latency_ns=max(one.latency_ns, other.latency_ns)
    )


def leaves_domain(device: Device, options: PlanOptions, sender: int, receiver: int) -> bool:
    """Whether any device of stage `sender` has its peer in another domain: the slowest transfer counts.

    Devices of two kinds share no domain.
    """
    device, other = options.device_of(sender, device), options.device_of(receiver, device)
    if device.name != other.name:
        return True
    domain, group = domain_devices(device), options.group
    stride = options.strides.pp or group.devices
    devices = joined(group.outer_devices, group.tensor_devices)
    return any((sender * stride + d) // domain != (receiver * stride + d) // domain for d in devices)


def _link(network: Network, token_bytes: int, options: PlanOptions) -> LinkPlan:
    latency, rate = options.hop_latency_ns, options.hop_bytes_per_s
    return LinkPlan(
        latency_ns=network.latency_ns if latency is None else latency,
        bytes_per_s=network.bytes_per_s if rate is None else rate,
        bytes_per_token=token_bytes,
        jitter_ns=options.hop_jitter_ns,
    )
