"""The flags of a run that concern its workload."""

from fractions import Fraction

import msgspec


class WorkloadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`rate_scale`: arrivals come that many times as fast. `requests`: their maximum. `sort`: read all rows first."""

    seed: int = 0
    rate_scale: Fraction = Fraction(1)
    requests: int | None = None
    skip_bad_rows: bool = False
    sort: bool = False
