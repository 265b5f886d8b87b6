"""Which stages of a decode replica hold the layers whose KV a stage of a prefill replica sends."""

from collections.abc import Iterator
from itertools import groupby

from stageline.plan.schema import Plan


class KvShares:
    """Divides the KV of each stage of `source` over the stages of `target` that hold the same layers.

    A plan gives the KV of a stage, not of a layer: each of the stage's layers counts the same. Layers are matched in
    their order; where the plans differ in their number, by depth.
    """

    def __init__(self, source: Plan, target: Plan) -> None:
        holders = [stage for _, stage in _layers(target)] or [0]
        layers = _layers(source)
        of_stage: list[list[int]] = [[] for _ in source.stages]
        for depth, (_, stage) in enumerate(layers):
            of_stage[stage].append(holders[depth * len(holders) // len(layers)])
        self._runs = [_runs(found or holders[-1:]) for found in of_stage]

    def split(self, stage: int, size: int) -> Iterator[tuple[int, int]]:
        """Of `size` bytes of a stage of the source: each stage of the target that takes some of them, and how many."""
        runs = self._runs[stage]
        layers = runs[-1][1]
        before = 0
        for target, end in runs:
            upto = size * end // layers
            if upto > before:
                yield target, upto - before
            before = upto


def _layers(plan: Plan) -> list[tuple[int, int]]:
    """Every layer with its stage, in the order of layers."""
    return sorted((layer, index) for index, stage in enumerate(plan.stages) for layer in stage.layers)


def _runs(holders: list[int]) -> list[tuple[int, int]]:
    """Neighbours with the same holder: the holder, and the layers up to their end."""
    runs, end = [], 0
    for holder, same in groupby(holders):
        end += len(list(same))
        runs.append((holder, end))
    return runs
