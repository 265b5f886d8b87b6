"""The files of LLMServingSim's kernel timings for a tensor-parallel size."""

from pathlib import Path

from stageline.api.files import read_file
from stageline.cost.collective import all_reduce
from stageline.cost.kernel_timings import LayerShape
from stageline.errors import BadInput, UsageError
from stageline.hardware.device import Device
from stageline.model.attention import Gqa
from stageline.model.ffn import Moe
from stageline.model.formats import ELEMENT_BYTES
from stageline.model.spec import ModelSpec

FILES = ("dense.csv", "attention.csv", "per_sequence.csv")
UNUSED = ("skew.csv", "skew_fit.csv", "step.csv")  # of unequal contexts, which the attention scale stands for; of steps
OTHERS = frozenset({*FILES, *UNUSED, "moe.csv"})


def rank_timings(folder: Path, spec: ModelSpec, device: Device, ranks: int) -> tuple[tuple[str, str, str], LayerShape]:
    """The texts of one rank's files, from `tpN` below the folder if it has such folders, and what they hold.

    Raises BadInput or UsageError.
    """
    own = folder / f"tp{ranks}"
    found = sorted(p.name for p in folder.glob("tp*") if p.is_dir())
    if own.is_dir():
        folder = own
    elif found:
        raise BadInput(str(folder), f"--tp {ranks}", f"no timings of {own.name}", f"it has {', '.join(found)}")
    elif ranks > 1:
        reason = f"its timings are those of an unsharded layer, not of one of {ranks} ranks"
        raise BadInput(str(folder), f"--tp {ranks}", reason, f"give a folder with {own.name}/, or --tp 1")
    unknown = sorted(p.name for p in folder.glob("*.csv") if p.name not in OTHERS)
    if unknown:
        raise UsageError(f"{folder / unknown[0]}: timings of a kind that a profile can't hold")
    dense, attention, per_sequence = (read_file(folder / file).decode(errors="replace") for file in FILES)
    return (dense, attention, per_sequence), _shape(folder, spec, device, ranks)


def _shape(folder: Path, spec: ModelSpec, device: Device, ranks: int) -> LayerShape:
    layer, moe = spec.layers[0], folder / "moe.csv"
    attention, ffn = layer.attention, layer.ffn
    token_bytes = spec.hidden * ELEMENT_BYTES[spec.activation_type]
    ways = [(a.latency_ns, a.ns_per_byte * token_bytes) for a in all_reduce(device, ranks)]

    def all_reduce_ns(tokens: int) -> float:
        return min(latency + token_ns * tokens for latency, token_ns in ways)

    return LayerShape(
        qk_norm=isinstance(attention, Gqa) and (attention.qk_norm or attention.qk_norm_all_heads),
        experts=ffn.experts if isinstance(ffn, Moe) else 0,
        top_k=ffn.top_k if isinstance(ffn, Moe) else 0,
        tensor_parallel=ranks,
        all_reduce_ns=all_reduce_ns if ways else None,
        moe=read_file(moe).decode(errors="replace") if moe.is_file() else "",
    )
