"""Counter-based randomness (rule 4): a hash of where a number is used, never a stateful generator.

The finaliser is SplitMix64 (Steele, Lea, Flood 2014); a stream's coordinates are folded into a 64-bit key once, so
that a draw inside a stream costs one finaliser.
"""

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15

STREAM_JITTER = 1  # a = replica, b = link, c = microbatch
STREAM_EXPERTS = 2  # a = replica, b = visit, c = microbatch
STREAM_ACCEPTANCE = 3  # a = request, b = 0, c = output token that a draft stands for
STREAM_ARRIVAL = 16  # a = 0, b = 0, c = request
STREAM_INPUT = 17
STREAM_OUTPUT = 18
STREAM_MAX_OUTPUT = 19
STREAM_SYSTEM = 20  # lengths of system prompts
STREAM_BLOCK = 21  # identities of blocks: a, b = which text, c = position in it
STREAM_ANSWER = 23  # identities of blocks of answers in traces: a = row, b = 0, c = block
STREAM_PROMPT = 22  # a = kind of name, b = 0, c = name: the content of prompts that a load client sends
STREAM_RETRY = 32  # a = request, b = turn, c = retry: when a load client sends a call again


def _mix(x: int) -> int:
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & _MASK
    return x ^ (x >> 31)


def stream_key(seed: int, stream: int, a: int, b: int) -> int:
    """The 64-bit key of one stream; any integers, taken modulo 2**64."""
    key = _mix((seed + _GOLDEN) & _MASK)
    for part in (stream, a, b):
        key = _mix((key ^ (part & _MASK)) + _GOLDEN & _MASK)
    return key


def draw_at(key: int, c: int) -> int:
    """Uniform integer in [0, 2**64) at position `c` (>= 0) of a stream."""
    x = (key + (c + 1) * _GOLDEN) & _MASK
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & _MASK
    return x ^ (x >> 31)


def draw(seed: int, stream: int, a: int, b: int, c: int) -> int:
    """Uniform integer in [0, 2**64) for these coordinates."""
    return draw_at(stream_key(seed, stream, a, b), c)
