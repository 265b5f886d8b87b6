"""A client's connection to a router."""

from typing import TYPE_CHECKING, Self

from grpc import aio

from stageline.errors import StagelineError, Unavailable
from stageline.v1 import router_pb2
from stageline.v1.router_pb2_grpc import RouterStub
from stageline.wire.channels import Dialer
from stageline.wire.errors import error_from, is_transport

if TYPE_CHECKING:  # exists only in the type stubs
    from stageline.v1.router_pb2_grpc import RouterAsyncStub


class ConnectionLost(Unavailable):
    """The connection failed, or was never established: the router did not refuse anything."""


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

    async def _status(self, timeout_s: float, *, metrics: bool = False) -> router_pb2.StatusReply:
        """Raises StagelineError."""
        try:
            request = router_pb2.StatusRequest(metrics=metrics)
            return await self._stub.Status(request, timeout=timeout_s, metadata=self._metadata)
        except aio.AioRpcError as error:
            raise self._error(error) from None

    def _error(self, error: aio.AioRpcError) -> StagelineError:
        """The error of a failed call: ConnectionLost if the transport failed."""
        found = error_from(error, self.place)
        return ConnectionLost(str(found)) if is_transport(error) and isinstance(found, Unavailable) else found
