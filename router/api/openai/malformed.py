"""Logging for clients that do not speak HTTP (gRPC or TLS on the wrong port, scanners) or disconnect midway.

aiohttp logs them as errors with a traceback. They are no error of this server, so they become one debug line.
"""

import logging

from aiohttp import ClientPayloadError, web
from aiohttp.http_exceptions import HttpProcessingError

log = logging.getLogger(__name__)
_FOREIGN = (HttpProcessingError, web.RequestPayloadError, ClientPayloadError, ConnectionError)


class _NoTraceback(logging.Filter):
    """Reduces such errors to a debug line. Every other record passes: a bug keeps its traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log the record unchanged."""
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, _FOREIGN):
            return True
        log.debug(
            "a client disconnected, or sent something other than HTTP",
            extra={"error": str(error).split("\n", 1)[0][:200]},
        )
        return False


SERVER_LOG = logging.getLogger(f"{__name__}.server")
SERVER_LOG.addFilter(_NoTraceback())
