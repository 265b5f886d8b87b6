"""What one message on a link carries: any number of microbatches, and a promise."""

import msgspec

from stageline.engine.microbatch import Item


class Frame(msgspec.Struct, frozen=True):
    """A frame on link `link` of one replica.

    `promise_ns`: no later item on this link arrives before it. `last`: the run is over, `releases` are the last ones to
    give KV back, and the frame has no items.
    """

    link: int
    items: list[Item]
    promise_ns: int
    last: bool = False
    releases: tuple[int, ...] = ()


class Ask(msgspec.Struct, frozen=True):
    """The receiver of `link` is blocked until it is promised that nothing arrives before `time_ns`."""

    link: int
    time_ns: int
