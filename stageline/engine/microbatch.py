"""A microbatch as stages see it: totals, KV changes, and stamps that explain gaps. The router keeps its members."""

import msgspec

from stageline.cost.totals import BatchTotals

# Owner, KV blocks added, linear-attention states added, blocks added to the context whose end sliding windows keep. The
# last is 0 on plans without windows; the context of a request includes the cached blocks that it uses.
Grant = tuple[int, int, int, int]


class Microbatch(msgspec.Struct, frozen=True, gc=False):
    """One microbatch. Times in ns.

    KV belongs to owners: requests, and (as negative numbers) blocks of the prefix cache. `grants` lists changes only,
    negative where KV passes to another owner. The stamps are those of rule 7; together with its trail they explain
    every gap.
    """

    number: int  # of this microbatch, per replica from 0
    totals: BatchTotals
    dispatch_ns: int  # when it was formed
    work_since_ns: int  # no work -> work, or the last dispatch if work was left over
    empty_since_ns: int  # when the replica ran out of requests, if it had none when that work came; else work_since_ns
    credit_since_ns: int  # credits 0 -> 1
    releases: tuple[int, ...] = ()  # owners whose KV is freed, before the grants
    grants: tuple[Grant, ...] = ()
    transfer_wait_ns: int = 0  # up to work_since, in which all requests waited for KV from elsewhere


class Trail(msgspec.Struct, frozen=True, gc=False):
    """What a visit passes on with a microbatch: when it ended, and why the microbatch is late (rule 7). Times in ns."""

    prev_end_ns: int  # at visit 0: the dispatch
    chunk_wait_ns: int = 0  # by which prefill chunks made it later than the microbatch before it
    pace_ns: int = 0  # service of the microbatch before it at that visit, and what it was behind the pace of that visit


class Item(msgspec.Struct, frozen=True, gc=False):
    """A microbatch on a link: when it arrives at the far end, and what the visit before the link passed on."""

    arrival_ns: int
    trail: Trail
    microbatch: Microbatch
