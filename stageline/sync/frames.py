"""What one message on a link carries: any number of microbatches, and a promise."""

import msgspec

from stageline.engine.microbatch import Item


class Frame(msgspec.Struct, frozen=True):
    """A frame on a link. Without items it only makes a promise: a null message.

    `promise_ns`: no later item on this link arrives before it. `last`: the run is over, `releases` are the last ones to
    give KV back, and the frame has no items. In another frame without items `releases` are announced: the pipeline is
    idle, and the next microbatch will give that KV back. `slip_ns`: how far the sender's live clock has slipped, in
    wall time.
    """

    items: list[Item]
    promise_ns: int
    last: bool = False
    releases: tuple[int, ...] = ()
    slip_ns: int = 0
