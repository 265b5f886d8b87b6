"""When a call is sent again."""

import msgspec

from stageline.engine.rng import STREAM_RETRY, draw_at, stream_key
from stageline.load.reply import MAX_RETRY_AFTER_NS, CallReply
from stageline.units import NS_PER_S

_FIRST_NS = NS_PER_S // 2
_MOST_DOUBLINGS = 12
_JITTER_PARTS = 1 << 20


class Retry(msgspec.Struct, frozen=True):
    """At most `most` times. `seed` makes the jitter the same in every run."""

    most: int = 0
    seed: int = 0

    def wait_ns(self, reply: CallReply, index: int, turn: int) -> int | None:
        """Wall time until the call is sent again; None: it is not.

        The larger of what the server asks for and half a second, doubled with every retry, and up to half as much
        again, so that clients that were refused together do not come back together.
        """
        if reply.retries >= self.most or not reply.may_retry:
            return None
        wait_ns = max(reply.retry_after_ns, _FIRST_NS << min(reply.retries, _MOST_DOUBLINGS))
        part = draw_at(stream_key(self.seed, STREAM_RETRY, index, turn), reply.retries) % _JITTER_PARTS
        return min(wait_ns + wait_ns * part // (2 * _JITTER_PARTS), MAX_RETRY_AFTER_NS * 3 // 2)
