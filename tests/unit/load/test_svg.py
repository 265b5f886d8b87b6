"""The axes of the load report's pictures."""

import re

from stageline.load.svg import ChartLine, line_chart


def test_large_figures_have_no_exponent() -> None:
    line = ChartLine("all", "red", [(0.0, 0.0), (2_000_000.0, 1_420_000.0)])
    labels = re.findall(r"<text[^>]*>([^<]*)</text>", line_chart([line], x_label="x", y_label="y"))
    assert "2,000,000" in labels and not [label for label in labels if re.search(r"e[+-]", label)]
