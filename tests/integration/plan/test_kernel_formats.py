"""Kernel tables of formats that a device multiplies otherwise than it stores them."""

from pathlib import Path

import pytest

from stageline.api.kernel_files import read_tables
from stageline.catalog.loader import Catalog
from stageline.cost.group import Group
from stageline.cost.make_kernel_profile import On, make_kernel_profile


def test_experts_of_four_bits_meet_the_activations_of_the_device(shared_data: Path) -> None:
    """Blackwell multiplies them with fp8 activations: the tables have Kimi K3's very shape in that format."""
    pytest.importorskip("pyarrow")
    found = read_tables(shared_data / "kernels" / "aiconfigurator" / "b300_sxm", "sglang")
    shelf = Catalog()
    on = On(shelf.model("kimi-k3").spec, shelf.device("b300").device, Group(tensor=8))
    notes = make_kernel_profile(found, on, "p", "").notes
    assert not any("experts" in note for note in notes), notes
