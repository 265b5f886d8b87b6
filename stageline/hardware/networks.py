"""Links of a device, and measured collectives over them."""

import msgspec


class CatalogStruct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The base of the catalogue's values, which refuse unknown fields."""


class Network(CatalogStruct, frozen=True):
    """One direction of a link: a transfer takes latency_ns + bytes / bytes_per_s."""

    bytes_per_s: int
    latency_ns: int


class ScaleUp(Network, frozen=True):
    """The fast link of a scale-up domain (NVLink, xGMI, ICI, PCIe inside a node)."""

    devices: int  # in one domain


class MeasuredCollective(CatalogStruct, frozen=True):
    """Measured time of a whole collective over `devices`: latency_ns + bytes / bytes_per_s (algorithm bandwidth).

    Bytes are the reduced vector of an all-reduce, and what one rank sends in an all-to-all.
    """

    devices: int
    latency_ns: int
    bytes_per_s: int
