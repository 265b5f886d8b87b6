"""Where requests come from: public traces, Stageline's own, and synthetic arrivals.

`open_workload` is the entry point. docs/workloads.md describes formats, specs and how odd rows are treated.
"""

from stageline.workload.opening import open_workload
from stageline.workload.rows import RowCounts
from stageline.workload.workloads import DescribedWorkload

__all__ = ["DescribedWorkload", "RowCounts", "open_workload"]
