"""Refused requests: no advice goes beyond what the model has positions for."""

import pytest

from stageline.report.refusals import refused_text


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        (131_072, "each is longer than the 131,072 tokens that the plan takes"),
        (None, "each is longer than its plan takes"),
        (0, "each fits no empty KV ledger"),
    ],
)
def test_the_way_out_stays_within_the_model(limit: int | None, says: str) -> None:
    text = refused_text(limit)
    assert text.startswith(says)
    assert "shorten them" in text and "--context" not in text
