"""File descriptors, of which every connection needs one: how many this process may open, and when it is near that."""

import asyncio
import contextlib
import errno
import logging
import os
import resource

log = logging.getLogger(__name__)
MOST = 1 << 20  # more are of no use, and some systems name a limit of billions
NEAR = 0.9  # of the limit
CHECK_S = 5.0
_OPEN = "/proc/self/fd"


def raise_limit() -> int:
    """Raises the soft limit to the hard one, at most MOST; returns the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return MOST if soft == resource.RLIM_INFINITY else soft
    with contextlib.suppress(OSError, ValueError):  # a sandbox may forbid it
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return soft


class DescriptorWatch:
    """Says once when the process comes near its limit, and again after it was far from it."""

    def __init__(self, limit: int) -> None:
        self._limit, self._near = limit, False

    def see(self, open_files: int) -> None:
        """Looks at a count of open descriptors."""
        near = open_files >= NEAR * self._limit
        if near and not self._near:
            log.warning(
                "this process is near its limit of open files: new connections will be refused; raise ulimit -n",
                extra={"open": open_files, "limit": self._limit},
            )
        elif self._near and not near:
            log.info("this process is far from its limit of open files again", extra={"open": open_files})
        self._near = near

    async def run(self) -> None:
        """Looks every CHECK_S until cancelled; returns at once where the system does not tell."""
        while (count := open_files(self._limit)) is not None:
            self.see(count)
            await asyncio.sleep(CHECK_S)


def open_files(limit: int) -> int | None:
    """How many descriptors are open: `limit` if not one more can be opened, None if the system does not tell."""
    try:
        with os.scandir(_OPEN) as found:
            return sum(1 for _ in found)
    except OSError as error:
        return limit if error.errno == errno.EMFILE else None
