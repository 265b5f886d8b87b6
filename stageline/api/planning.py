"""Planning: a model's and a device's name become a plan."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Unpack, cast

import msgspec

from stageline import units
from stageline.api.arguments import require_name, require_path, require_paths, shown
from stageline.api.drafting import find_draft
from stageline.api.files import write_file
from stageline.api.keywords import PlanKeywords, checked
from stageline.api.lookup import find_model
from stageline.api.overrides import overridden
from stageline.api.plan_options import make_options, with_formats, with_networks
from stageline.api.provenance import with_provenance
from stageline.api.serving import check_length, find_engine, with_engine
from stageline.catalog.loader import Catalog
from stageline.cost.kernel_profile import KernelProfile, beyond_tables
from stageline.errors import BadInput, DoesNotFit, UsageError
from stageline.hardware.device import Device
from stageline.model.spec import ModelSpec
from stageline.plan import drafter, stage_hardware
from stageline.plan.advice import advice
from stageline.plan.build import Planned, make_plan
from stageline.plan.check import check_plan
from stageline.plan.device_map import device_map
from stageline.plan.explain import explain
from stageline.plan.fitted_efficiencies import with_efficiencies
from stageline.plan.options import PlanOptions
from stageline.plan.report import PlanReport, plan_report
from stageline.plan.schema import Plan
from stageline.plan.stage_hardware import parse_stage_devices
from stageline.runtime import plans


class ModelPlan(msgspec.Struct, frozen=True):
    """A plan, and how it came about. `plan` is what engines, servers and the plan file share."""

    planned: Planned
    model: ModelSpec  # in the formats that were asked for
    shipped: ModelSpec  # in the formats of the catalogue
    device: Device
    options: PlanOptions

    @property
    def plan(self) -> Plan:
        """The plan itself."""
        return self.planned.plan

    def report(self) -> PlanReport:
        """What each stage holds, what binds, how many microbatches fill the pipeline; what `plan --json` prints."""
        return plan_report(self.planned)

    def advice(self) -> list[str]:
        """What to try next, one sentence each."""
        found = advice(self.model, self.device, self.options, self.planned)
        profile, plan = self.options.profile, self.plan
        if not isinstance(profile, KernelProfile):
            return found
        sizes = plan.defaults.batched_tokens, plan.defaults.microbatch, self.planned.memory.context_tokens
        return found + beyond_tables(profile, *sizes)

    def explain(self) -> list[str]:
        """The derivation, line by line."""
        return explain(self.model, self.planned)

    def towers(self) -> str:
        """What becomes of the model's vision and audio towers; "" if it has none."""
        model, names = self.model, [name for name in self.model.left_out if "MTP" not in name]
        if not names:
            return ""
        if not model.tower_params:
            return f"{', '.join(names)}: not counted, an engine loads it on its first stage"
        size = f"{', '.join(names)}: {units.bytes_text(model.tower_bytes())}"
        if self.options.language_model_only:
            return f"{size}, not loaded"
        return f"{size} on {self.plan.stages[0].name}; --language-model-only leaves it out"

    def device_map(self) -> dict[str, int]:
        """Modules and their devices, in the Hugging Face form."""
        return device_map(self.plan)

    def devices_saved(self) -> int | None:
        """Devices fewer than with the weights as shipped; None where the weights, or the devices, were not chosen."""
        if self.model.layers == self.shipped.layers or self.options.devices is not None:
            return None
        types = {"kv_type": self.model.kv_type, "state_type": self.model.state_type}
        options = self.options
        if isinstance(options.profile, KernelProfile):  # of the chosen weights; times decide no number of devices
            options = msgspec.structs.replace(options, profile=None)
        try:
            before = make_plan(msgspec.structs.replace(self.shipped, **types), self.device, options).plan
        except DoesNotFit:
            return None
        return sum(s.devices for s in before.stages) - sum(s.devices for s in self.plan.stages)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the plan file. Raises UsageError where that can't be done."""
        write_file(require_path("write: path", path), msgspec.json.format(self.plan.canonical(), indent=1) + b"\n")


def plan_model(
    model: str | os.PathLike[str],
    device: str,
    *,
    catalog: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
    **keywords: Unpack[PlanKeywords],
) -> ModelPlan:
    """Place a model's layers on devices and size the pipeline: `stageline plan`.

    `model` is a catalogue name, a Hugging Face id or the path of a config.json, `device` a catalogue name. `catalog`
    names directories, one or several, with models, devices, links and profiles of your own. `PlanKeywords` has the
    keywords; sizes are in tokens, times in ns, bandwidths in bytes per second.

    Raises DoesNotFit when the devices are too few, BadInput for an unknown name, and UsageError for keywords that are
    out of range or contradict each other. Messages name the flag of `stageline plan` that a keyword stands for.

    >>> import stageline
    >>> planned = stageline.plan_model("llama-3.1-70b", "h100-sxm", tensor_parallel=4, context_tokens=32768)
    >>> planned.report().devices
    4
    """
    given = cast(PlanKeywords, checked(plan_model, keywords, PlanKeywords))
    names = require_name("plan_model: model", model), require_name("plan_model: device", device)
    return plan_inputs(find_inputs(*names, given, require_paths("plan_model: catalog", catalog)))


def read_plan(path: str | os.PathLike[str]) -> Plan:
    """The plan in a file that `stageline plan -o` or `ModelPlan.write` wrote.

    Raises BadInput, naming the place inside the document, when it is damaged or describes no pipeline.
    """
    return plans.read_plan_file(require_path("read_plan: path", path))


class PlanInputs(msgspec.Struct, frozen=True):
    """What a plan is made from, looked up and checked."""

    shipped: ModelSpec  # in the formats of the catalogue
    model: ModelSpec  # in the formats that were asked for
    device: Device
    options: PlanOptions
    keywords: PlanKeywords = {}


def find_inputs(model: str, device: str, keywords: PlanKeywords, catalog_dirs: Sequence[Path]) -> PlanInputs:
    """Look up the names. Raises BadInput or UsageError."""
    shelf = Catalog(catalog_dirs)
    shipped = find_model(model, shelf)
    spec = overridden(with_formats(shipped, keywords), keywords.get("hf_overrides"))
    by_stage = _devices_by_stage(device, keywords, shelf)
    found = by_stage[0] if by_stage else with_networks(shelf.device(device).device, keywords, shelf)
    check_length(keywords.get("max_model_len"), spec)
    options = make_options(keywords, shelf, catalog_dirs)
    draft = find_draft(spec, keywords, shelf)
    if draft and draft.model and options.profile:
        raise UsageError(f"{drafter.FLAG}: a --profile has no times of a drafter: give one of them")
    options = msgspec.structs.replace(options, draft=draft, devices_by_stage=by_stage)
    options = with_engine(options, find_engine(keywords, found, shelf), found, keywords)
    return PlanInputs(shipped, spec, found, options, keywords)


def _devices_by_stage(device: str, keywords: PlanKeywords, shelf: Catalog) -> tuple[Device, ...]:
    """The device of every stage, if they were given. Raises BadInput."""
    text = keywords.get("devices_by_stage")
    if not text:
        return ()
    names = parse_stage_devices(text)
    if names[0] != device:
        reason = f"the first stage is on {names[0]}, but the device that was given is {device}"
        raise BadInput(stage_hardware.FLAG, text, reason, "leave that device out, or give the first stage's")
    kinds = {name: with_networks(shelf.device(name).device, keywords, shelf) for name in dict.fromkeys(names)}
    return tuple(kinds[name] for name in names)


def plan_inputs(inputs: PlanInputs, command: str = "") -> ModelPlan:
    """Plan; `command` is kept in the plan. Raises DoesNotFit, UsageError or BadInput."""
    device, options = with_efficiencies(inputs.model, inputs.device, inputs.options)
    planned = make_plan(inputs.model, device, options)
    planned = planned._replace(plan=with_provenance(planned.plan, inputs.model, options, inputs.keywords, command))
    check_plan(planned.plan, "the plan that these flags make")
    return ModelPlan(planned, inputs.model, inputs.shipped, device, options)


def as_plan(plan: object, function: str) -> Plan:
    """The plan of a ModelPlan, of a plan file, or itself. Raises BadInput for a file that holds none, UsageError for
    anything else.
    """
    if isinstance(plan, ModelPlan):
        return plan.plan
    if isinstance(plan, (str, os.PathLike)):
        return read_plan(plan)
    if not isinstance(plan, Plan):
        reason = "give what plan_model returned, a Plan, or the path of a plan file"
        raise UsageError(f"{function}: plan={shown(plan)}: {reason}")
    return plan
