"""Limits of a search on where devices stand and what they cost."""

import math
from collections.abc import Mapping, Sequence

import msgspec

from stageline.errors import BadInput
from stageline.hardware.device import Device
from stageline.plan.shapes import Shape

MAX_PRICE = 1e9


def check_price(price: float, device: str = "") -> float:
    """The price of a device's hour. Raises BadInput."""
    if not (math.isfinite(price) and 0 < price <= MAX_PRICE):
        given = f"{device}={price:g}" if device else price
        raise BadInput("--price", given, f"not above 0 and at most {MAX_PRICE:,.0f}", "give a price such as 2.5")
    return price


class PlacementLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What of a division is allowed. Prices are money per device and hour, by device; "" stands for all others."""

    tensor_in_node: bool = False  # tensor, expert and context ranks of a stage share a node
    whole_nodes: bool = False  # all devices of a deployment fill their nodes
    stock: Mapping[str, int] = {}  # devices that there are, by device; absent: no limit
    prices: Mapping[str, float] = {}
    budget: float | None = None  # money per hour

    def check(self) -> None:
        """Raises BadInput naming the flag."""
        for name, price in self.prices.items():
            check_price(price, name)
        for name, count in self.stock.items():
            if count < 0:
                raise BadInput("--stock", f"{name}={count}", "below 0", "give how many there are")
        if self.budget is None:
            return
        if not (math.isfinite(self.budget) and self.budget > 0):
            raise BadInput("--budget", self.budget, "not above 0", "give money per hour, such as 40")
        if not self.prices:
            raise BadInput("--budget", self.budget, "needs to know what a device costs", "give --price too")

    def check_devices(self, names: Sequence[str]) -> None:
        """Raises BadInput for a device that is not among those searched, and for one without a price beside others."""
        searched = ", ".join(names)
        for flag, given in (("--stock", self.stock), ("--price", self.prices)):
            for name in given:
                if name and name not in names:
                    raise BadInput(flag, name, "not one of the devices that are searched", f"they are {searched}")
        unknown = [name for name in names if self.price(name) is None]
        if self.prices and unknown:
            raise BadInput("--price", None, f"{unknown[0]} has none, and others do", f"give one for each of {searched}")

    def price(self, device: str) -> float | None:
        """Of one device for an hour; None: unknown."""
        return self.prices.get(device, self.prices.get(""))

    def cost(self, device: str, devices: int) -> float | None:
        """Of so many devices for an hour; None: unknown."""
        price = self.price(device)
        return None if price is None else devices * price

    def refused(self, device: Device, shape: Shape) -> str | None:
        """Why the division is not allowed; None: it is."""
        node = device.scale_up.devices if device.scale_up else 1
        group = max(shape.tp, shape.ep) * shape.cp
        if self.tensor_in_node and group > node:
            return f"its stages of {group} devices leave a node of {node} (--tensor-in-node)"
        if self.whole_nodes and shape.devices % node:
            return f"{shape.devices} devices are no whole nodes of {node} (--whole-nodes)"
        return self.refused_number(device.name, shape.devices)

    def refused_number(self, device: str, devices: int) -> str | None:
        """Why so many devices are not allowed; None: they are."""
        owned = self.stock.get(device)
        if owned is not None and devices > owned:
            return f"it needs {devices} devices of the {owned} in stock (--stock)"
        cost = self.cost(device, devices)
        if self.budget is not None and cost is None:
            return f"what one {device} costs is unknown (--price), so that --budget can't be kept"
        if self.budget is not None and cost is not None and cost > self.budget:
            return f"it costs {cost:,.2f} an hour, more than --budget {self.budget:,.2f}"
        return None
