"""Rule 9: how many drafts a decode step carries, and how many of them are accepted."""

from stageline.engine.rng import draw
from stageline.engine.settings import Scheduling
from tests.reference.sequence import Sequence

STREAM_ACCEPTANCE = 3
MILLION = 10**6


def step_tokens(scheduling: Scheduling, sequence: Sequence, room_tokens: int) -> int:
    """Its last token, and as many drafts as are wanted, may still be produced and have room in the microbatch."""
    may_come = sequence.request.max_output_tokens - sequence.generated
    return max(1, min(1 + scheduling.speculate, may_come, room_tokens))


def is_accepted(scheduling: Scheduling, seed: int, index: int, token: int) -> bool:
    """Whether a draft that stands for output token `token` of a request is right."""
    number = draw(seed, STREAM_ACCEPTANCE, index, 0, token)
    return number * MILLION < scheduling.acceptance_ppm * 2**64


def accepted(scheduling: Scheduling, seed: int, sequence: Sequence, drafts: int) -> int:
    """Drafts before the first rejection."""
    first = sequence.generated
    verdicts = [is_accepted(scheduling, seed, sequence.index, first + n) for n in range(drafts)]
    return drafts if all(verdicts) else verdicts.index(False)
