"""Where requests come from: public traces, Stageline's own, and synthetic arrivals.

`open_workload` is the door; see docs/workloads.md for formats, specs and what is decided about odd rows.
"""

from stageline.workload.opening import open_workload
from stageline.workload.rows import RowCounts
from stageline.workload.workloads import DescribedWorkload

__all__ = ["DescribedWorkload", "RowCounts", "open_workload"]
