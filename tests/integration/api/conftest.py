"""What tests of the API run on: a small plan whose runs take milliseconds."""

import pytest

import stageline


@pytest.fixture(scope="session")
def small() -> stageline.ModelPlan:
    """An 8B model on two devices."""
    return stageline.plan_model("llama-3.1-8b", "h100-sxm", devices=2)
