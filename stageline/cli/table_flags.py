"""Flags of `stageline calibrate` for kernel tables, and where models and devices are found."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from stageline.api.keywords import ElementName
from stageline.cli.numbers import WHOLE


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class TableFlags:
    """What is looked up in kernel tables."""

    expert_parallel: Annotated[
        int, WHOLE, Parameter(name=["--ep"], help="Ranks that experts are spread over; with kernel tables.")
    ] = 1
    weights: Annotated[
        str,
        Parameter(
            name=["--dtype", "--weights"],
            help="Weight format of all linear layers: as-shipped, bf16, fp8, nvfp4, ...; with kernel tables.",
        ),
    ] = "as-shipped"
    kv_cache_dtype: Annotated[
        ElementName, Parameter(help="Type of the KV cache; auto is the model's; with kernel tables.")
    ] = "auto"
    framework: Annotated[
        Literal["vllm", "sglang"], Parameter(help="Serving engine whose kernels are preferred; with kernel tables.")
    ] = "vllm"
    expert_load: Annotated[
        Literal["balanced", "power_law_1.01", "power_law_1.2"],
        Parameter(help="Distribution of tokens over experts; with kernel tables."),
    ] = "balanced"
    catalog: Annotated[
        tuple[Path, ...],
        Parameter(negative="", show_default=False, help="Directories with your own models/ and devices/."),
    ] = ()

    def given(self) -> list[str]:
        """The flags for kernel tables that are not at their defaults."""
        names = {"expert_parallel": "--ep", "weights": "--dtype", "kv_cache_dtype": "--kv-cache-dtype"}
        return [
            names.get(f.name, f"--{f.name.replace('_', '-')}")
            for f in fields(self)
            if f.name != "catalog" and getattr(self, f.name) != f.default
        ]
