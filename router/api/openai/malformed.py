"""Clients that send what is no HTTP (gRPC or TLS on the wrong port, scanners), or leave in the middle.

aiohttp logs them as errors with a traceback. They are no error of this server: one line, for who wants to know.
"""

import logging

from aiohttp import ClientPayloadError, web
from aiohttp.http_exceptions import HttpProcessingError

log = logging.getLogger(__name__)
_FOREIGN = (HttpProcessingError, web.RequestPayloadError, ClientPayloadError, ConnectionError)


class _NoTraceback(logging.Filter):
    """Everything else passes: a mistake of ours keeps its traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is logged as it is."""
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, _FOREIGN):
            return True
        log.debug("a client left, or sent what is no HTTP", extra={"error": str(error).split("\n", 1)[0][:200]})
        return False


SERVER_LOG = logging.getLogger(f"{__name__}.server")
SERVER_LOG.addFilter(_NoTraceback())
