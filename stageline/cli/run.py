"""`stageline run`: a plan and a workload through emulated time."""

import json
import shlex
import sys
import time
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from cyclopts import Parameter
from rich.console import Console

from stageline.cli.engines import EngineName, execute
from stageline.cli.plans import load_plan
from stageline.cli.progress import Watched, progress_of
from stageline.engine.settings import Balance, Batching, KvPolicy, Queueing, Scheduling
from stageline.engine.types import RunTotals
from stageline.errors import SloMissed, StagelineError, UsageError
from stageline.plan.schema import Plan
from stageline.report.slo import Slo, parse_slo
from stageline.report.summary import RunFacts, Summary
from stageline.report.tables import run_report
from stageline.report.writer import RunWriter
from stageline.units import parse_duration_ns
from stageline.workload import Workload, open_workload
