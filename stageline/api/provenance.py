"""How a plan was made, for its `info`: engines ignore it, people and `compare` read it."""

from collections import Counter

import msgspec

from stageline.api.keywords import PlanKeywords
from stageline.model.spec import ModelSpec
from stageline.plan.options import DEFAULTS_VERSION, PlanOptions
from stageline.plan.schema import Plan
from stageline.report.backtest import backtest_facts

Facts = dict[str, str | int | float | bool]


def with_provenance(plan: Plan, spec: ModelSpec, options: PlanOptions, asked: PlanKeywords, command: str = "") -> Plan:
    """The plan with how it was made in `info`."""
    group = options.group
    made: Facts = {
        "tp": group.tensor,
        "pp": len(plan.stages),
        "ep": options.expert_parallel,
        "cp": group.context,
        "dp": plan.replicas,
        "weights": weights_of(spec),
        "defaults": DEFAULTS_VERSION,
    }
    for name in ("scale_up", "scale_out", "network"):
        if chosen := asked.get(name):
            made[name] = str(chosen)
    if options.max_num_seqs is not None:
        made["max_num_seqs"] = options.max_num_seqs
    if options.draft is not None:
        made["drafts"] = f"{options.draft.tokens} by {options.draft.method}"
    if options.serving is not None:
        made["serving_engine"] = options.serving.engine
    if options.efficiencies is not None:
        made |= backtest_facts(options.efficiencies.backtest)
    if command:
        made["command"] = command
    return msgspec.structs.replace(plan, info=plan.info | made)


def weights_of(spec: ModelSpec) -> str:
    """The format of most of the layers' weights."""
    params: Counter[str] = Counter()
    for layer, count in Counter(spec.layers).items():
        for tensor in layer.tensors(spec.hidden):
            params[getattr(layer.formats, tensor.weight_class)] += count * tensor.params
    return params.most_common(1)[0][0]
