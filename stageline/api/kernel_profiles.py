"""Shape profiles from a folder of kernel tables."""

from pathlib import Path
from typing import NamedTuple

from stageline.api.kernel_files import read_tables, system_folder, used
from stageline.api.keywords import PlanKeywords
from stageline.api.plan_options import make_options
from stageline.catalog.loader import Catalog
from stageline.cost.kernel_profile import KernelProfile
from stageline.cost.make_kernel_profile import On, make_kernel_profile
from stageline.hardware.device import Device
from stageline.model.spec import ModelSpec
from stageline.plan.check_shape import check_shape


class KernelRequest(NamedTuple):
    """The group of a profile, whose kernels are preferred, and how tokens spread over experts."""

    tensor_parallel: int = 1
    expert_parallel: int = 1
    framework: str = "vllm"
    distribution: str = "balanced"


def kernel_profile(folder: Path, name: str, spec: ModelSpec, device: Device, request: KernelRequest) -> KernelProfile:
    """The times of a model's operations, looked up in the tables. Raises BadInput or UsageError."""
    keywords: PlanKeywords = {"tensor_parallel": request.tensor_parallel}
    if request.expert_parallel > 1:
        keywords["expert_parallel"] = request.expert_parallel
    options = make_options(keywords, Catalog(()), ())
    check_shape(spec, options)
    tables = read_tables(system_folder(folder, device), request.framework)
    on = On(spec, device, options.group, request.distribution)
    return make_kernel_profile(tables, on, name, "; ".join(used(tables)))
