"""Every error that a user or a peer can meet.

    StagelineError
    |- UsageError        a flag or a combination of flags that makes no sense         exit 2
    |- BadInput          a file, row or field: place, value, reason, way out          exit 2
    |- Unauthenticated   a key or a certificate is missing or not believed            exit 2
    |- DoesNotFit        the model does not fit the devices                           exit 4
    |- SloMissed         the run is good, its latency is not                          exit 3
    |- RunFailed         a run that had begun could not go on                         exit 1
    |- PlanMismatch      two processes hold different plans                           exit 1
    |- KvOverdraw        a frame asks for more KV than the stage's ledger has         exit 1
    |- ProtocolError     a peer broke the protocol                                    exit 1
    |- SessionUnknown    a peer speaks of a session that is not open here               exit 1
    |- Busy              the server is there and will not take this now               exit 1
    `- Unavailable       the server, or a stage behind it, is not there               exit 1

Each class knows its gRPC code, HTTP status, OpenAI error type and whether trying again can help. A broken law
(`LawBroken`) is not among them: it is our own bug and stops the process.
"""


class StagelineError(Exception):
    """The root. The message is one sentence for a person: place, value and the way out."""

    exit_code = 1
    grpc_code = "INTERNAL"
    http_status = 500
    error_type = "server_error"
    retry = False


class UsageError(StagelineError):
    """A flag, or a combination of flags, that makes no sense."""

    exit_code = 2
    grpc_code = "INVALID_ARGUMENT"
    http_status = 400
    error_type = "invalid_request_error"


class BadInput(UsageError):
    """A file, row or field that can't be used."""

    def __init__(self, place: str, value: object, reason: str, way_out: str = "") -> None:
        self.place, self.value, self.reason, self.way_out = place, value, reason, way_out
        text = f"{place}: {reason}" + (f" (got {value!r})" if value is not None else "")
        super().__init__(text + (f"; {way_out}" if way_out else ""))


class Unauthenticated(UsageError):
    """An API key or a certificate is missing, or the other side does not believe it."""

    grpc_code = "UNAUTHENTICATED"
    http_status = 401


class DoesNotFit(StagelineError):
    """The model does not fit: says which device, by how many bytes, and the smallest change that would."""

    exit_code = 4
    grpc_code = "FAILED_PRECONDITION"
    http_status = 400


class SloMissed(StagelineError):
    """The run is complete; an objective given with --slo was missed."""

    exit_code = 3


class RunFailed(StagelineError):
    """A run that had begun could not go on; what it produced so far is kept and marked incomplete."""

    grpc_code = "ABORTED"


class PlanMismatch(StagelineError):
    """Two processes hold different plans; the message names both digests."""

    grpc_code = "FAILED_PRECONDITION"


class KvOverdraw(StagelineError):
    """A frame would overdraw a stage's ledger; the message shows both ledgers."""

    grpc_code = "RESOURCE_EXHAUSTED"


class ProtocolError(StagelineError):
    """A peer sent what the protocol does not allow: malformed, out of order, out of session."""

    grpc_code = "INVALID_ARGUMENT"


class SessionUnknown(StagelineError):
    """The session is not open here: the server has been restarted, or never had it."""

    grpc_code = "NOT_FOUND"


class Busy(StagelineError):
    """The server is there and will not take this now (queue full, another router's session, live requests)."""

    grpc_code = "RESOURCE_EXHAUSTED"
    http_status = 429
    error_type = "rate_limit_error"
    retry = True


class Unavailable(StagelineError):
    """The server, or a stage behind it, can't be reached."""

    grpc_code = "UNAVAILABLE"
    http_status = 503
    retry = True


class LawBroken(AssertionError):
    """One of the numbered laws does not hold: a bug of ours. Never caught, never shown as a user's mistake."""
