"""A Hugging Face device map: module name -> first device of the stage that holds it."""

from stageline.plan.schema import Plan


def device_map(plan: Plan) -> dict[str, int]:
    """One entry "" for a model on one stage, else embedding, every layer, final norm and head.

    The map covers one replica.
    """
    if len(plan.stages) == 1:
        return {"": 0}
    first, at = [], 0
    for stage in plan.stages:
        first.append(at)
        at += stage.devices
    of_layer = {layer: first[i] for i, stage in enumerate(plan.stages) for layer in stage.layers}
    last = of_layer[max(of_layer)]
    layers = {f"model.layers.{layer}": of_layer[layer] for layer in sorted(of_layer)}
    return {"model.embed_tokens": of_layer[0], **layers, "model.norm": last, "lm_head": last}
