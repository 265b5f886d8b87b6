"""Figures that commands draw with --plot."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from stageline.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@contextmanager
def saved_axes(path: Path) -> Iterator["Axes"]:
    """The axes of a figure, which is saved at the end. Raises UsageError if it can't be."""
    import matplotlib as mpl  # noqa: PLC0415  (loaded only when a figure is drawn)

    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    try:
        yield axes
        try:
            figure.savefig(path)
        except (OSError, ValueError) as error:
            raise UsageError(f"--plot {path}: can't be written: {error}; give a .svg or .png file") from None
    finally:
        plt.close(figure)
