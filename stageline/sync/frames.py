"""What the parties of a run say to each other."""

import msgspec

from stageline.engine.microbatch import Item


class Frame(msgspec.Struct):
    """Microbatches and a promise for one link."""

    link: int
    items: list[Item]
    promise_ns: int
    releases: tuple[int, ...] = ()
