"""Flags of `stageline calibrate` that describe the server that was measured."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from stageline.api.fitting import Serving
from stageline.cli.numbers import WHOLE
from stageline.errors import BadInput

MAX_SETTING = 1 << 20


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class ServingFlags:
    """The server that was measured."""

    max_num_seqs: Annotated[
        int, WHOLE, Parameter(name=["--max-num-seqs", "--max-running"], help="Requests that the server ran at once.")
    ] = 256
    batched_tokens: Annotated[
        int,
        WHOLE,
        Parameter(
            name=["--batched-tokens", "--max-num-batched-tokens"], help="Maximum number of new tokens in a step."
        ),
    ] = 2048
    tensor_parallel: Annotated[
        int,
        WHOLE,
        Parameter(name=["--tensor-parallel-size", "--tp"], help="Tensor-parallel size of the server."),
    ] = 1

    def settings(self) -> Serving:
        """Raises BadInput."""
        return Serving(
            _count(self.max_num_seqs, "--max-num-seqs"),
            _count(self.batched_tokens, "--batched-tokens"),
            _count(self.tensor_parallel, "--tp"),
        )


def _count(value: int, flag: str) -> int:
    if not 1 <= value <= MAX_SETTING:
        raise BadInput(flag, value, f"not between 1 and {MAX_SETTING:,}", "give what the measured engine was run with")
    return value
