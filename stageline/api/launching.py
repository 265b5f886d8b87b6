"""Launch texts of a candidate, each read again and planned: what is printed makes the plan that was run."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import yaml

from stageline.api.fleet_text import FleetAnswer, fleet_of_plan, fleet_toml, run_command
from stageline.api.helm_values import helm_values, line_of_values
from stageline.api.keywords import PlanKeywords
from stageline.api.launch_line import parse_launch_line
from stageline.api.launch_text import SGLANG, VLLM, LaunchTexts, launch_words
from stageline.api.lookup import find_entry
from stageline.api.plan_command import PLAN_FILE, plan_command_text
from stageline.api.planning import find_inputs, plan_inputs
from stageline.api.trials import Candidate
from stageline.catalog.loader import Catalog
from stageline.engine.settings import plan_scheduling
from stageline.errors import StagelineError
from stageline.plan.schema import Plan
from stageline.plan.shapes import Shape
from stageline.report.rerun import flags


class Answer(NamedTuple):
    """What a search found, as it was asked for."""

    model: str
    device: str
    shape: Shape
    keywords: PlanKeywords
    candidate: Candidate
    plan: Plan  # the candidate's
    price: float | None = None  # of a device's hour

    def texts(self, catalog_dirs: Sequence[Path]) -> LaunchTexts:
        """The lines that make it again."""
        return launch_texts(self, catalog_dirs)


def launch_texts(found: Answer, catalog_dirs: Sequence[Path]) -> LaunchTexts:
    """The lines of every engine that can be launched like that."""
    entry = find_entry(found.model, Catalog(catalog_dirs))
    named = entry.hf_ids[0] if entry is not None and entry.hf_ids else found.model
    plan, missing = found.plan, []
    lines: dict[str, str] = {}
    for engine in (VLLM, SGLANG):
        words = launch_words(engine, named, found.shape, found.keywords, plan)
        wrong = words if isinstance(words, str) else _differs(found, shlex.join(words), engine, catalog_dirs)
        if wrong is None and not isinstance(words, str):
            lines[engine] = shlex.join(words)
            if engine != _engine_of(plan):
                missing.append(f"{engine}: only the division is the run's, whose batches {_engine_of(plan)} formed")
        elif wrong:
            missing.append(f"{engine}: {wrong}")
    helm = ""
    if VLLM in lines:
        text = helm_values(shlex.split(lines[VLLM]), found.candidate.model, found.shape)
        again = line_of_values(yaml.safe_load(text))
        helm = text if _differs(found, again, VLLM, catalog_dirs) is None else ""
    unsaid = flags(found.candidate.scheduling, plan_scheduling(plan))
    if unsaid:
        missing.append(f"the router in front, and no engine's flag: {' '.join(unsaid)}")
    return LaunchTexts(
        plan=plan_command_text((found.model, found.device), found.shape, found.keywords, catalog_dirs),
        run=run_command(found.candidate, found.price, PLAN_FILE, plan_scheduling(plan)),
        fleet=fleet_toml(_as_fleet(found), catalog_dirs),
        vllm=lines.get(VLLM, ""),
        sglang=lines.get(SGLANG, ""),
        helm=helm,
        not_said=tuple(missing),
    )


def _as_fleet(found: Answer) -> FleetAnswer:
    one = msgspec.structs.replace(found.shape, replicas=1)
    fleet = fleet_of_plan(found.plan, found.candidate.scheduling)
    return FleetAnswer(found.model, found.device, fleet, (one,), (found.keywords,), None, found.candidate, found.price)


def _differs(found: Answer, line: str, engine: str, catalog_dirs: Sequence[Path]) -> str | None:
    """Why the plan of a line is not the plan that was run; None: it is, but for what another engine does itself."""
    read = parse_launch_line(line)
    keywords = PlanKeywords(**{**_unsaid(found.keywords), "serving_engine": read.serving_engine, **read.keywords})  # type: ignore[typeddict-item]
    try:
        made = plan_inputs(find_inputs(read.model, found.device, keywords, catalog_dirs)).plan
    except StagelineError as error:
        return str(error)
    ran = found.plan
    if engine != _engine_of(ran):
        same = (len(made.stages), made.replicas, [s.devices for s in made.stages])
        return None if same == (len(ran.stages), ran.replicas, [s.devices for s in ran.stages]) else "another division"
    plain = [msgspec.structs.replace(p, info={}, model="") for p in (made, ran)]
    return None if plain[0] == plain[1] else "its flags make another plan than the one that was run"


def _engine_of(plan: Plan) -> str:
    return plan.serving.engine if plan.serving else VLLM


def _unsaid(keywords: PlanKeywords) -> dict[str, object]:
    """What describes the hardware and the measure of the plan, and is given beside a line."""
    said = {
        "weights", "quantization", "hf_overrides", "kv_cache_dtype", "max_model_len", "memory_share", "block_tokens",
        "max_num_seqs", "kv_blocks", "kv_cache_bytes", "max_num_batched_tokens", "batched_tokens", "prefix_cache",
        "microbatch", "serving_engine", "language_model_only", "tower_mode",
    }  # fmt: skip
    return {name: value for name, value in keywords.items() if name not in said}
