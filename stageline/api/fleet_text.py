"""The answer of a search as a fleet file in TOML: its pools in the flags of `stageline plan` and `stageline run`."""

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stageline.api.fleet_file import KvTransferTable
from stageline.api.fleet_running import without_router
from stageline.api.keywords import PlanKeywords
from stageline.api.launch_text import LaunchTexts
from stageline.api.lookup import looks_like_path
from stageline.api.plan_command import plan_words
from stageline.api.trials import Candidate
from stageline.engine.fleet import Fleet, Pool
from stageline.engine.settings import Scheduling, plan_scheduling
from stageline.plan.schema import Plan
from stageline.plan.shapes import Shape
from stageline.report.rerun import Rerun, flags
from stageline.units import duration_text

FLEET_FILE = "fleet.toml"
_FILES = ("profile", "serving_engine")  # keywords that may name files


class FleetAnswer(NamedTuple):
    """A fleet that a search found, as it was asked for. `shapes` are of one replica of each pool."""

    model: str
    device: str
    fleet: Fleet
    shapes: tuple[Shape, ...]
    keywords: tuple[PlanKeywords, ...]
    transfer: KvTransferTable | None
    candidate: Candidate
    price: float | None = None  # of a device's hour

    def texts(self, catalog_dirs: Sequence[Path]) -> LaunchTexts:
        """The fleet file, and the command that runs it. No engine has a line for a fleet."""
        return LaunchTexts(
            run=run_command(self.candidate, self.price, FLEET_FILE, Scheduling()),
            fleet=fleet_toml(self, catalog_dirs),
            not_said=("two pools take launch lines of an engine for each, and a router in front",),
        )


def run_command(c: Candidate, price: float | None, file: str, base: Scheduling) -> str:
    """The command that makes a trial again; `base` is what the file sets."""
    rerun = Rerun(
        workload=c.workload, seed=c.seed, rate_scale=c.rate_scale, requests=c.requests or 0, skip_bad_rows=False,
        sort=False, slo=c.slo or "", scheduling=c.scheduling, warmup=c.window.warmup, measure_window=c.window.text,
        price=price,
    )  # fmt: skip
    return rerun.command(file, base)


def fleet_of_plan(plan: Plan, scheduling: Scheduling) -> Fleet:
    """A plan as a fleet of one pool."""
    pool = Pool(name="all", plan=plan, scheduling=without_router(scheduling))
    return Fleet(pools=(pool,), balance=scheduling.balance, front_end_ns=scheduling.front_end_ns)


def fleet_toml(found: FleetAnswer, catalog_dirs: Sequence[Path]) -> str:
    """The fleet file, which plans and sets what was run. Paths in it are absolute: it may be written anywhere."""
    parts = []
    if found.transfer is not None:
        parts.append(_table("[kv-transfer]", _given(found.transfer)))
    parts.append(_table("[routing]", _routing(found.fleet)))
    slo = found.candidate.slo
    for pool, shape, keywords in zip(found.fleet.pools, found.shapes, found.keywords, strict=True):
        parts.append(_table("[[pool]]", _pool(found, pool, shape, keywords, catalog_dirs, slo)))
    return "\n\n".join(parts) + "\n"


def _pool(
    found: FleetAnswer, pool: Pool, shape: Shape, keywords: PlanKeywords, catalog_dirs: Sequence[Path], slo: str | None
) -> dict[str, Any]:
    anywhere: Any = {name: _absolute(str(v)) if name in _FILES and v else v for name, v in keywords.items()}
    own = flags(pool.scheduling, without_router(plan_scheduling(pool.plan)))
    row: dict[str, Any] = {
        "name": pool.name, "role": pool.role, "model": _absolute(found.model), "device": found.device,
        "flags": shlex.join(plan_words(shape, anywhere, [path.absolute() for path in catalog_dirs])),
        "replicas": pool.plan.replicas, "scheduling": shlex.join(own),
        "slo": slo if pool.scheduling.tpot_slo_ns else None,
    }  # fmt: skip
    return {key: value for key, value in row.items() if value not in (None, "")}


def _routing(fleet: Fleet) -> dict[str, Any]:
    return {"balance": fleet.balance, "front-end": duration_text(fleet.front_end_ns)}


def _given(transfer: KvTransferTable) -> dict[str, Any]:
    """What was given of the transfer, in the words of the file."""
    defaults, names = KvTransferTable(), zip(transfer.__struct_fields__, transfer.__struct_encode_fields__, strict=True)
    pairs = [(key, getattr(transfer, name), getattr(defaults, name)) for name, key in names]
    return {key: value for key, value, default in pairs if value != default}


def _table(head: str, rows: Mapping[str, Any]) -> str:
    """A table of TOML, whose plain strings are written as JSON's."""
    return "\n".join([head, *(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in rows.items())])


def _absolute(text: str) -> str:
    """A path that there is as an absolute one; a name as it is."""
    path = Path(text)
    named = looks_like_path(text) or path.suffix == ".toml"
    return str(path.absolute()) if named and path.exists() else text
