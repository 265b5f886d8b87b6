"""Array types of the vectorised service models. Imports numpy, as only the `vectorised` modules of this package do."""

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
DrawArray = npt.NDArray[np.uint64]
Columns = Mapping[str, IntArray]  # one array per field of BatchTotals, all of one length
VectorisedModel = Callable[[Columns, DrawArray | None], IntArray]  # (columns, draws) -> ns
