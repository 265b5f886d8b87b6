"""Every error that a user or a peer can cause.

    StagelineError
    |- UsageError          a flag, or a combination of flags, that can't be used      exit 2
    |  |- BadInput         a file, row, field or flag: place, value, reason, hint     exit 2
    |  `- Unauthenticated  a key or a certificate is missing or not trusted           exit 2
    |- DoesNotFit          the model does not fit the devices                         exit 4
    |- SloMissed           the run is complete, but missed its SLO                    exit 3
    |- RunFailed           a run failed after it had begun                            exit 1
    |- PlanMismatch        two processes hold different plans                         exit 1
    |- VersionMismatch     two servers, or a command and an image, differ in version  exit 1
    |- KvOverdraw          a frame asks for more KV than the stage's ledger has       exit 1
    |- ProtocolError       a peer broke the protocol                                  exit 1
    |- SessionUnknown      the session that a peer names is not open here             exit 1
    |- Busy                the server is up but can't take this now                   exit 1
    `- Unavailable         the server, or a stage behind it, can't be reached         exit 1

Each class has an exit code, a gRPC code, an HTTP status, an OpenAI error type, and whether a retry can help.

A broken law (`LawBroken`) is not among them: it is a bug. In one process it propagates and ends the run; a server logs
it with its traceback and fails the session.
"""

import errno

DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})  # of the system, on writing


class StagelineError(Exception):
    """The root. The message is one sentence for the user: where, what is wrong, and what to do."""

    exit_code = 1
    grpc_code = "INTERNAL"
    http_status = 500
    error_type = "server_error"
    retry = False


class UsageError(StagelineError):
    """A flag, or a combination of flags, that can't be used."""

    exit_code = 2
    grpc_code = "INVALID_ARGUMENT"
    http_status = 400
    error_type = "invalid_request_error"


class BadInput(UsageError):
    """A file, row, field or flag that can't be used: `place`, `value`, `reason` and `hint`."""

    def __init__(self, place: str, value: object, reason: str, hint: str = "") -> None:
        self.place, self.value, self.reason, self.hint = place, value, reason, hint
        text = f"{place}: {reason}" + (f" (got {value!r})" if value is not None else "")
        super().__init__(text + (f"; {hint}" if hint else ""))


class Unauthenticated(UsageError):
    """An API key or a certificate is missing, or the other side does not trust it."""

    grpc_code = "UNAUTHENTICATED"
    http_status = 401


class DoesNotFit(StagelineError):
    """The model does not fit: names the device, the missing bytes, and the smallest change that would help, if any."""

    exit_code = 4
    grpc_code = "FAILED_PRECONDITION"
    http_status = 400

    def __init__(self, reason: str, change: str = "") -> None:
        super().__init__(f"{reason}; smallest change: {change}" if change else reason)
        self.reason = reason


class SloMissed(StagelineError):
    """The run is complete, but it missed an objective of --slo."""

    exit_code = 3


class RunFailed(StagelineError):
    """A run failed after it had begun; its results so far are kept and marked incomplete."""

    grpc_code = "ABORTED"


class PlanMismatch(StagelineError):
    """Two processes hold different plans; the message names both digests."""

    grpc_code = "FAILED_PRECONDITION"


class VersionMismatch(StagelineError):
    """Two servers, or a command and the image it starts, are of different versions; the message names both."""

    grpc_code = "FAILED_PRECONDITION"


class KvOverdraw(StagelineError):
    """A frame would overdraw a stage's ledger; the message shows both ledgers."""

    grpc_code = "RESOURCE_EXHAUSTED"


class ProtocolError(StagelineError):
    """A peer sent something that the protocol does not allow: malformed, out of order or outside a session."""

    grpc_code = "INVALID_ARGUMENT"


class SessionUnknown(StagelineError):
    """The session is not open here: the server restarted, or never had it."""

    grpc_code = "NOT_FOUND"


class Busy(StagelineError):
    """The server is up but can't take this now: its queue is full, or another session or run is in the way."""

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
    """One of the numbered laws does not hold, which is a bug; a server catches it only to fail the session."""
