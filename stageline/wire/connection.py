"""A client's connection to a router."""

from typing import TYPE_CHECKING, Self

from stageline.v1.router_pb2_grpc import RouterStub
from stageline.wire.channels import Dialer

if TYPE_CHECKING:  # known to the type stubs only
    from stageline.v1.router_pb2_grpc import RouterAsyncStub


class RouterConnection:
    """One channel to a router; an async context manager. `_metadata` goes with every call."""

    def __init__(self, address: str, dialer: Dialer | None = None) -> None:
        self.place = f"router at {address}"
        dialer = dialer or Dialer()
        self._channel, self._metadata = dialer.channel(dialer.resolved(address)), dialer.metadata
        self._stub: RouterAsyncStub = RouterStub(self._channel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()
