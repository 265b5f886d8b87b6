"""The TOML files of devices and links."""

from typing import Any

import msgspec

from stageline.catalog.citation import Citation, check_sources
from stageline.catalog.decode import convert
from stageline.errors import BadInput
from stageline.hardware.costs import KernelCosts, shares_in_range
from stageline.hardware.device import Device
from stageline.hardware.networks import Network


class DeviceEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A device of the catalogue, and the sources of its numbers."""

    device: Device
    sources: tuple[Citation, ...]


class CostsEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Kernel constants of a device, and the tables to which they were fitted."""

    costs: KernelCosts
    sources: tuple[Citation, ...]


class LinkEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A link of the catalogue, and the sources of its numbers."""

    name: str
    title: str
    network: Network
    sources: tuple[Citation, ...]


class LinkFile(Network, frozen=True):
    """One file in links/."""

    name: str
    title: str
    source: tuple[Citation, ...]


def _read_citations(document: dict[str, Any], place: str) -> tuple[Citation, ...]:
    sources = convert(document.get("source", []), tuple[Citation, ...], f"{place}: source")
    check_sources(document, sources, place)
    return sources


def check_network(network: Network, place: str) -> None:
    """Refuse a bandwidth that is not positive, and a negative latency. Raises BadInput."""
    if not 0 < network.bytes_per_s < 1 << 62:
        raise BadInput(f"{place}.bytes_per_s", network.bytes_per_s, "must be positive")
    if not 0 <= network.latency_ns < 1 << 62:
        raise BadInput(f"{place}.latency_ns", network.latency_ns, "can't be negative")


def _check_engine(device: Device, place: str) -> None:
    for name in ("nominal_memory_bytes", "runtime_bytes"):
        if not 0 <= getattr(device, name) < 1 << 62:
            raise BadInput(f"{place}: $.{name}", getattr(device, name), "can't be negative")
    for i, buffers in enumerate(device.collective_buffers):
        if not (2 <= buffers.devices < 1 << 32 and 0 <= buffers.bytes < 1 << 62):
            reason = "needs devices of at least 2 and bytes that are not negative"
            raise BadInput(f"{place}: $.collective_buffers[{i}]", [buffers.devices, buffers.bytes], reason)


def _check_collectives(device: Device, place: str) -> None:
    for i, row in enumerate(device.all_reduce):
        check_network(Network(bytes_per_s=row.bytes_per_s, latency_ns=row.latency_ns), f"{place}: $.all_reduce[{i}]")
    for i, exchange in enumerate(device.all_to_all):
        network = Network(bytes_per_s=exchange.bytes_per_s, latency_ns=exchange.latency_ns)
        check_network(network, f"{place}: $.all_to_all[{i}]")


def _check_device(device: Device, place: str) -> None:
    for name in ("memory_bytes", "bandwidth_bytes_per_s"):
        if not 0 < getattr(device, name) < 1 << 62:
            raise BadInput(f"{place}: $.{name}", getattr(device, name), "must be positive")
    _check_engine(device, place)
    for name in ("flops", "bandwidth", "memory"):
        if not 0 < getattr(device.share, name) <= 1:
            raise BadInput(f"{place}: $.share.{name}", getattr(device.share, name), "must be above 0 and at most 1")
    if device.peak_flops.bf16 <= 0 or device.peak_flops.fp8 < 0 or device.peak_flops.fp4 < 0:
        raise BadInput(f"{place}: $.peak_flops", None, "bf16 must be positive, the others positive or 0")
    for name in device.overhead.__struct_fields__:
        if not 0 <= getattr(device.overhead, name) < 1 << 40:
            raise BadInput(f"{place}: $.overhead.{name}", getattr(device.overhead, name), "can't be negative")
    check_network(device.scale_out, f"{place}: $.scale_out")
    if device.scale_up:
        check_network(device.scale_up, f"{place}: $.scale_up")
        if device.scale_up.devices < 1:
            raise BadInput(f"{place}: $.scale_up.devices", device.scale_up.devices, "must be positive")
    _check_collectives(device, place)
    if not 0 <= device.one_shot_ns < 1 << 40:
        raise BadInput(f"{place}: $.one_shot_ns", device.one_shot_ns, "can't be negative")


def device_entry(document: dict[str, Any], place: str) -> DeviceEntry:
    """A device from its TOML document. Raises BadInput naming file and field."""
    sources = _read_citations(document, place)
    device = convert({k: v for k, v in document.items() if k != "source"}, Device, place)
    _check_device(device, place)
    if device.costs:
        raise BadInput(f"{place}: $.costs", None, "kernel constants have a file of their own, costs/NAME.toml")
    return DeviceEntry(device=device, sources=sources)


def costs_entry(document: dict[str, Any], place: str) -> CostsEntry:
    """Kernel constants from their TOML document. Raises BadInput naming file and field."""
    sources = _read_citations(document, place)
    costs = convert({k: v for k, v in document.items() if k != "source"}, KernelCosts, place)
    wrong = shares_in_range(costs)
    if wrong:
        raise BadInput(f"{place}: $.{wrong}", None, "must not be negative, and a share must be positive")
    for kind in ("all_reduce", "reduce_scatter", "all_gather"):
        for i, row in enumerate(getattr(costs, kind)):
            network = Network(bytes_per_s=row.bytes_per_s, latency_ns=row.latency_ns)
            check_network(network, f"{place}: $.{kind}[{i}]")
    return CostsEntry(costs=costs, sources=sources)


def link_entry(document: dict[str, Any], place: str) -> LinkEntry:
    """A link from its TOML document. Raises BadInput naming file and field."""
    sources = _read_citations(document, place)
    file = convert(document, LinkFile, place)
    check_network(file, f"{place}: $")
    network = Network(bytes_per_s=file.bytes_per_s, latency_ns=file.latency_ns)
    return LinkEntry(name=file.name, title=file.title, network=network, sources=sources)
