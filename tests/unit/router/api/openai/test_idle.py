"""Connections without a request are aborted, others never."""

from types import SimpleNamespace
from typing import Any, cast

from aiohttp import web

from router.api.openai.idle import IdleConnections


class Wire:
    """A transport that remembers whether it was aborted."""

    def __init__(self) -> None:
        self.aborted = False

    def get_extra_info(self, name: str) -> Any:
        """It has no socket."""
        return None

    def abort(self) -> None:
        """See asyncio."""
        self.aborted = True


def test_what_is_idle_for_too_long_is_aborted() -> None:
    idle = IdleConnections(idle_s=60)
    silent, used = Wire(), Wire()
    connections = [cast(Any, SimpleNamespace(transport=wire)) for wire in (silent, used, None)]
    request = cast(web.Request, SimpleNamespace(transport=used))
    assert idle.sweep(connections, 0) == 0
    with idle.request(request):
        assert idle.sweep(connections, 59) == 0
        assert idle.sweep(connections, 60) == 1
        assert (silent.aborted, used.aborted) == (True, False)
        assert idle.sweep(connections[1:], 600) == 0
    assert idle.sweep(connections[1:], 601) == 0
    assert idle.sweep(connections[1:], 660) == 0
    assert idle.sweep(connections[1:], 661) == 1


def test_a_connection_that_ends_is_forgotten() -> None:
    idle = IdleConnections(idle_s=60)
    connection = cast(Any, SimpleNamespace(transport=Wire()))
    idle.sweep([connection], 0)
    idle.sweep([], 30)
    assert idle.sweep([connection], 61) == 0
