"""Errors keep class, code, message and origin over gRPC."""

import grpc
import pytest
from grpc import aio

from stageline import errors
from stageline.errors import KvOverdraw, RunFailed, StagelineError, Unavailable, UsageError
from stageline.wire.errors import LocatedError, error_from, is_transport, locate, plain, status_of


def over_the_wire(error):
    code, details, metadata = status_of(error)
    return aio.AioRpcError(code, aio.Metadata(), aio.Metadata(*metadata), details)


CLASSES = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, StagelineError)]


@pytest.mark.parametrize("kind", [c for c in CLASSES if c is not errors.BadInput])
def test_every_class_comes_back(kind):
    back = error_from(over_the_wire(kind("the sentence")), "router at here")
    assert type(back) is kind
    assert str(back) == "the sentence"


def test_an_error_with_its_own_constructor_comes_back():
    back = error_from(over_the_wire(errors.BadInput("plan.json", 3, "too few stages")), "router")
    assert isinstance(back, errors.BadInput)
    assert str(back) == "plan.json: too few stages (got 3)"


def test_a_class_of_one_side_comes_back_as_the_nearest_that_both_know():
    class Special(errors.BadInput):
        """Known to a server only."""

    back = error_from(over_the_wire(Special("n", 3, "too many")), "router")
    assert type(back) is errors.BadInput
    assert str(back) == "n: too many (got 3)"


def test_the_origin_stays_with_the_error():
    first = locate(KvOverdraw("ledger full"), "stage 3 of replica 0")
    relayed = locate(error_from(over_the_wire(first), "stage 2"), "stage 2 of replica 0")
    assert isinstance(relayed, LocatedError)
    assert relayed.party == "stage 3 of replica 0"
    assert isinstance(plain(relayed), KvOverdraw)
    assert str(plain(relayed)) == "stage 3 of replica 0: ledger full"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, Unavailable),
        (grpc.StatusCode.DEADLINE_EXCEEDED, Unavailable),
        (grpc.StatusCode.UNIMPLEMENTED, UsageError),
        (grpc.StatusCode.UNKNOWN, RunFailed),
        (grpc.StatusCode.OK, Unavailable),
    ],
)
def test_what_the_transport_says(code, kind):
    error = aio.AioRpcError(code, aio.Metadata(), aio.Metadata(), "why\nand more")
    assert is_transport(error)
    back = error_from(error, "stage 4 at here:1")
    assert type(back) is kind
    assert "stage 4 at here:1" in str(back)
    assert "more" not in str(back)


def test_a_connection_that_breaks_within_grpc_is_a_lost_peer():
    """Else the session would end with that report, and not wait for the news of who was lost."""
    said = [
        error_from(aio.AioRpcError(grpc.StatusCode.INTERNAL, aio.Metadata(), aio.Metadata(), details), "stage 1")
        for details in ("Internal error from Core", "Received http2 header with status: 502")
    ]
    assert [type(error) for error in said] == [Unavailable, RunFailed]
    assert str(said[0]) == "stage 1 can't be reached (Internal error from Core); is it running?"
