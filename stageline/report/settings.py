"""How a plan was made and what drove a run, for summary.json and for people."""

import msgspec

from stageline.engine.settings import Scheduling
from stageline.plan.schema import Plan

Facts = dict[str, str | int | float | bool]

_AXES = (("tp", "TP"), ("ep", "EP"), ("cp", "CP"), ("pp", "PP"))


def settings_in_force(plan: Plan, scheduling: Scheduling, serving_engine: str | None = None) -> Facts:
    """The settings that a run ran with: those given, and the plan's defaults for the others.

    `serving_engine` is the engine that replaced the plan's. A user's setting that was never used (a target without
    its policy, a cost without drafts) is left out.
    """
    engine = serving_engine or (plan.serving.engine if plan.serving else "")
    defaults = msgspec.structs.asdict(plan.defaults)
    found: Facts = {"serving_engine": engine} if engine else {}
    for name, value in msgspec.structs.asdict(scheduling).items():
        chosen = defaults.get(name) if value is None else value
        if chosen is not None:
            found[name] = chosen
    if not scheduling.prefix_cache:
        found.pop("snapshot_tokens", None)
    return {name: value for name, value in found.items() if value or name in ("prefix_cache", "serving_engine")}


def plan_label(made: Facts) -> str:
    """How a plan divides its devices, and in which format: "TP4 PP2 x 2, bf16"; "" if the plan does not say."""
    if "tp" not in made:
        return ""
    axes = " ".join(f"{label}{made[name]}" for name, label in _AXES if int(made.get(name, 1)) > 1) or "TP1"
    copies = f" x {made['dp']}" if int(made.get("dp", 1)) > 1 else ""
    kinds = dict.fromkeys(str(made.get("stage_devices", "")).split(","))  # of stages on different devices
    return ", ".join(part for part in (axes + copies, " + ".join(kinds), str(made.get("weights", ""))) if part)


def run_label(made: Facts, settings: Facts) -> str:
    """The plan and the serving engine of a run: "TP4 PP2 x 2, bf16, vllm-v1"."""
    return ", ".join(part for part in (plan_label(made), str(settings.get("serving_engine", ""))) if part)


def settings_text(settings: Facts) -> str:
    """What bounds and orders the batches of a run, in one line."""
    policies = ", ".join(str(settings[name]) for name in ("batching", "queueing") if name in settings)
    kept = f"KV {settings.get('kv', '')}, prefix cache {'on' if settings.get('prefix_cache') else 'off'}"
    limits = [
        f"{int(settings.get('credits', 0)):,} in flight",
        f"microbatches of at most {int(settings.get('microbatch', 0)):,}",
        f"{int(settings.get('batched_tokens', 0)):,} new tokens each",
    ]
    if "max_running" in settings:
        limits.append(f"{int(settings['max_running']):,} running per replica")
    return f"{policies}, {kept}; {', '.join(limits)}"
