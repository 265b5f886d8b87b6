"""The CUDA graphs that a plan's serving engine captures: its own sizes, or those that were asked for."""

from stageline.api.keywords import PlanKeywords
from stageline.catalog.engine_file import MAX_GRAPH_SIZE, ServingEngine
from stageline.cost.roofline_entry import CapturedSizes
from stageline.errors import BadInput, UsageError
from stageline.hardware.device import Device

SIZES, MOST, EAGER = "--cuda-graph-sizes", "--cuda-graph-max", "--enforce-eager"


def captured_sizes(
    engine: ServingEngine, device: Device, asked: PlanKeywords, tensor_ranks: int, drafts: int
) -> CapturedSizes | None:
    """The captured sizes; None where the profile says nothing of graphs. Raises UsageError and BadInput.

    With drafts a decode step has 1 + drafts tokens per sequence. Sizes that count sequences are so many times as large;
    those that count tokens are rounded up to multiples of it, and so is the bound per sequence.
    """
    limits, kind, step = engine.limits_of(device), device.kind, 1 + drafts
    graphs, given = engine.graphs, _given(asked)
    if graphs is None or kind not in graphs.kinds:
        if given:
            reason = f"on a {kind} the profile of {engine.name} says nothing of CUDA graphs"
            raise UsageError(f"{given[0]}: {reason}: leave it out, or give a --serving-engine that has [graphs]")
        return None
    if EAGER in given and len(given) > 1:
        raise UsageError(f"{EAGER} captures no graph: leave {given[1]} out")
    running = asked.get("max_num_seqs") or limits.max_num_seqs
    most = engine.graph_most(limits, tensor_ranks, running * step if running and graphs.counts == "tokens" else running)
    wanted, largest = asked.get("cuda_graph_sizes", ()), asked.get("cuda_graph_max")
    if asked.get("enforce_eager"):
        sizes: tuple[int, ...] = ()
    elif wanted:
        sizes = _checked(wanted, largest)
    else:
        sizes = graphs.sizes(min(MAX_GRAPH_SIZE, most if largest is None else largest))
    if graphs.counts == "tokens":
        sizes = tuple(sorted({-(-size // step) * step for size in sizes}))
    else:
        sizes = tuple(size * step for size in sizes)
    return CapturedSizes(sizes, float(graphs.eager_op_ns), graphs.decode_only, graphs.exact)


def _given(asked: PlanKeywords) -> list[str]:
    flags = ((EAGER, "enforce_eager"), (SIZES, "cuda_graph_sizes"), (MOST, "cuda_graph_max"))
    return [flag for flag, name in flags if asked.get(name)]


def _checked(wanted: tuple[int, ...], largest: int | None) -> tuple[int, ...]:
    sizes = tuple(sorted(set(wanted)))
    if sizes[-1] > MAX_GRAPH_SIZE:
        raise BadInput(SIZES, sizes[-1], f"above {MAX_GRAPH_SIZE:,}", "give smaller sizes")
    if largest is not None and largest != sizes[-1]:
        raise UsageError(f"{MOST} {largest}: {SIZES} ends with {sizes[-1]}: give one of them")
    return sizes
