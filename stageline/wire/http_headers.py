"""The HTTP headers that only Stageline has; the router and the load client share them."""

from typing import Final

DILATION_HEADER: Final = "x-stageline-dilation"  # wall time per emulated time, in every reply
OUTPUT_TOKENS_HEADER: Final = "x-stageline-output-tokens"  # exact output length of a request
