"""What binds in each pool of a fleet: one line per cause that takes much of its stages' time."""

from collections.abc import Iterator, Sequence

from stageline.engine.causes import CAUSE, CAUSES
from stageline.engine.types import StageRecord
from stageline.report.idle import cause_shares, share_with_work
from stageline.report.pools import RunPools
from stageline.report.summary import Advice

NOTABLE = 0.10  # minimum share of the time with work in the system for a cause to get a line
_OF_THE_RUN = frozenset({"empty", "fill", "drain"})  # causes of which the whole run gets a line


def pool_advice(pools: RunPools, stages: Sequence[StageRecord]) -> Iterator[Advice]:
    """By pool in file order, the largest cause first."""
    for pool in pools.pools:
        shares = cause_shares(pool.records(stages))
        notable = NOTABLE * share_with_work(shares)
        for name in sorted(CAUSES, key=lambda cause: -shares[cause]):
            if name in _OF_THE_RUN or not shares[name] or shares[name] < notable:
                continue
            cause = CAUSE[name]
            seen = f"Pool {pool.name}: stages idle for {shares[name]:.0%} of the time ({name}: {cause.meaning})"
            yield Advice(seen, cause.moved_by)
