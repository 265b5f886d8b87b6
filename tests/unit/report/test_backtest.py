"""The error of a backtest in words."""

import pytest

from stageline.report.backtest import PREFIX, backtest_text


@pytest.mark.parametrize(
    ("error", "text"),
    [(0.016, "1.6 %"), (0.04, "4 %"), (0.0996, "10 %"), (0.123, "12 %"), (1.2, "120 %"), (14.2, "1,420 %")],
)
def test_an_error_has_no_exponent(error: float, text: str) -> None:
    assert backtest_text({f"{PREFIX}ttft_s": error}, "ttft_s") == text
