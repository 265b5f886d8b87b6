"""Errors <-> gRPC status.

The error's code and message travel as the status' code and details. Its class, and the party that met it first, travel
in trailing metadata, so that a relayed error keeps its origin.
"""

import re
from typing import NoReturn

import grpc
from grpc import aio

from stageline import errors
from stageline.errors import RunFailed, StagelineError, Unauthenticated, Unavailable, UsageError

ERROR_KEY = "stageline-error"
PARTY_KEY = "stageline-party"
_BROKEN = "Internal error from Core"  # gRPC sometimes says so of a connection that breaks

_CLASSES: dict[str, type[StagelineError]] = {
    name: value for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, StagelineError)
}


class LocatedError(StagelineError):
    """An error and the party that met it first."""

    def __init__(self, error: StagelineError, party: str) -> None:
        self.error, self.party = error, party
        super().__init__(str(error))


def locate(error: StagelineError, party: str) -> LocatedError:
    """Adds the origin to an error that has none yet."""
    return error if isinstance(error, LocatedError) else LocatedError(error, party)


def plain(error: StagelineError) -> StagelineError:
    """The error without its wrapper, with the origin in its message."""
    if not isinstance(error, LocatedError):
        return error
    text = str(error.error)
    names_place = isinstance(error.error, Unavailable | RunFailed)  # their message already says who was lost
    return (
        error.error
        if names_place or error.party in text
        else rebuilt(type(error.error).__name__, f"{error.party}: {text}")
    )


def rebuilt(name: str, text: str) -> StagelineError:
    """An error of the named class, StagelineError if unknown, with this message."""
    kind = _CLASSES.get(name, StagelineError)
    error = kind.__new__(kind)
    Exception.__init__(error, text)
    return error


def status_of(error: StagelineError) -> tuple[grpc.StatusCode, str, tuple[tuple[str, str], ...]]:
    """Code, details and trailing metadata of an error."""
    party = error.party if isinstance(error, LocatedError) else ""
    cause = error.error if isinstance(error, LocatedError) else error
    name = next(c.__name__ for c in type(cause).__mro__ if c.__name__ in _CLASSES)  # a class that both sides know
    metadata: tuple[tuple[str, str], ...] = ((ERROR_KEY, name),)
    if party:
        metadata += ((PARTY_KEY, party),)
    return grpc.StatusCode[cause.grpc_code], str(cause), metadata


async def abort(context: aio.ServicerContext, error: StagelineError) -> NoReturn:  # type: ignore[type-arg]
    """Ends the call with the error's status."""
    code, details, metadata = status_of(error)
    await context.abort(code, details, metadata)
    raise AssertionError  # abort never returns


def error_from(error: aio.AioRpcError, place: str) -> StagelineError:
    """The error of a failed call: the peer's own if it sent one, else what the transport reports about `place`."""
    metadata = {str(k): str(v) for k, v in (error.trailing_metadata() or ())}
    details = error.details() or error.code().name
    if name := metadata.get(ERROR_KEY):
        found = rebuilt(name, details)
        party = metadata.get(PARTY_KEY)
        return LocatedError(found, party) if party else found
    broken = error.code() is grpc.StatusCode.INTERNAL and details.startswith(_BROKEN)
    match grpc.StatusCode.UNAVAILABLE if broken else error.code():
        case grpc.StatusCode.UNAVAILABLE if reason := _handshake(details):
            return Unauthenticated(f"{place} can't be reached: {reason}")
        case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.DEADLINE_EXCEEDED | grpc.StatusCode.CANCELLED:
            return Unavailable(f"{place} can't be reached ({_short(details)}); {_question(details)}")
        case grpc.StatusCode.UNIMPLEMENTED:
            return UsageError(f"{place} is not a server of this kind ({_short(details)}); is the address right?")
        case grpc.StatusCode.OK:
            return Unavailable(f"{place} ended the call too early")
        case code:
            return RunFailed(f"{place} failed: {code.name} {_short(details)}")


def _question(details: str) -> str:
    """What the user may check. A server with TLS closes the connection of a client without TLS or certificate."""
    if "failed to connect" in details and "Socket closed" in details:
        return "does it want TLS (--tls-ca), or a certificate (--tls-cert, --tls-key)?"
    return "is it running?"


def _handshake(details: str) -> str:
    """Why a TLS handshake failed; empty: it was not the handshake that failed."""
    if "CERTIFICATE_VERIFY_FAILED" in details:
        return f"its certificate is not trusted{_verdict(details)}; is --tls-ca the authority that signed it?"
    if "WRONG_VERSION_NUMBER" in details:
        return "it does not speak TLS; leave out --tls-ca, or call it grpc://HOST:PORT"
    if "Peer name" in details or "Hostname" in details:
        return f"its certificate is for another host ({_short(details)}); call it by a name that the certificate has"
    return ""


def _verdict(details: str) -> str:
    """The verifier's reason, which gRPC puts at the end."""
    found = re.search(r"CERTIFICATE_VERIFY_FAILED: ([\w ]+)", details)
    return f" ({found[1].strip()})" if found else ""


def is_transport(error: aio.AioRpcError) -> bool:
    """Whether the connection failed, as opposed to the peer answering with an error."""
    return ERROR_KEY not in {str(k) for k, _ in (error.trailing_metadata() or ())}


def _short(details: str) -> str:
    """The first line of gRPC's details, without the addresses and error trees that follow."""
    return details.splitlines()[0][:160]
