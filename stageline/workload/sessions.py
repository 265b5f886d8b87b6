"""Users who hold conversations: every turn sends the whole conversation again, behind a shared system prompt.

User u of S x U has system prompt u mod S. Request i is the next turn of user i mod (S x U); after its last turn a user
begins a new conversation behind the same system prompt. The prompt of a turn is the system prompt, all earlier
questions and answers of the conversation, and its own question. Arrivals are open-loop: a turn does not wait for the
answer before it.
"""

from collections.abc import Iterator
from fractions import Fraction
from itertools import takewhile

import msgspec

from stageline.engine.rng import STREAM_BLOCK, STREAM_SYSTEM, draw, draw_at, stream_key
from stageline.engine.types import Request
from stageline.errors import BadInput
from stageline.units import NS_PER_S, rounded_ratio
from stageline.workload.arrivals import poisson_times
from stageline.workload.lengths import Length, Lengths
from stageline.workload.rows import MAX_TOKENS

MAX_BLOCKS = 1 << 20  # of one prompt; bounds the memory of a conversation


class RateStage(msgspec.Struct, frozen=True):
    """A rate (requests per second) and for how many seconds; None: without end."""

    rate: Fraction
    seconds: Fraction | None

    @property
    def expected(self) -> Fraction:
        """Requests in the mean; only of a stage that ends."""
        return self.rate * (self.seconds or 0)


def staged_times(stages: list[RateStage], seed: int) -> Iterator[int]:
    """Poisson arrivals of one stage after the other; what would come after a stage's end does not come."""
    start_ns = 0
    for number, stage in enumerate(stages):
        times = poisson_times(stage.rate, seed, number)
        if stage.seconds is None:
            yield from times
            return
        length_ns = rounded_ratio(stage.seconds.numerator * NS_PER_S, stage.seconds.denominator)
        yield from (start_ns + time_ns for time_ns in takewhile(length_ns.__gt__, times))
        start_ns += length_ns


class _Talk(msgspec.Struct):
    """Where one user is. Holds the identities of one conversation, so memory is bounded by users, not by requests."""

    tokens: int  # of the conversation so far, answers included
    ids: list[int]
    number: int  # conversations of this user before this one
    turn: int = 0


class Conversations:
    """Makes the requests one after the other.

    A block of `block_tokens` that lies in the system prompt is named after that and its position, any other one after
    user, conversation and position: equal names mean equal texts, since a conversation only grows.
    """

    def __init__(
        self,
        *,
        seed: int,
        system_prompts: int,
        users: int,
        turns: int,
        block_tokens: int,
        system: Length,
        lengths: Lengths,
    ) -> None:
        self._seed, self._turns = seed, turns
        self._prompts, self._users = system_prompts, system_prompts * users
        self.block_tokens = block_tokens
        self._system, self._lengths = system, lengths
        self._talks: dict[int, _Talk] = {}

    def request(self, index: int, arrival_ns: int, place: str) -> Request:
        """Request `index`; to be called in order. BadInput at `place` when the conversation has become too long."""
        user = index % self._users
        talk = self._talks.get(user)
        if talk is None or talk.turn == self._turns:
            talk = self._talks[user] = self._begin(user, 0 if talk is None else talk.number + 1)
        question, answer = self._lengths.at(user, index // self._users)
        prompt = talk.tokens + question
        if prompt > MAX_BLOCKS * self.block_tokens or prompt > MAX_TOKENS:
            reason = f"request {index} has {prompt} tokens: more than {MAX_TOKENS}, or {MAX_BLOCKS} blocks"
            raise BadInput(place, None, reason, "take fewer turns, or longer blocks")
        self._name(talk, user, -(-prompt // self.block_tokens))
        talk.tokens, talk.turn = prompt + answer, talk.turn + 1
        return Request(
            index=index, arrival_ns=arrival_ns, prompt_tokens=prompt, output_tokens=answer, max_output_tokens=answer,
            conversation=f"user-{user}/{talk.number}", hash_ids=tuple(talk.ids),
        )  # fmt: skip

    def _begin(self, user: int, number: int) -> _Talk:
        """A new conversation: the system prompt, and the identities of the blocks that lie in it."""
        prompt = user % self._prompts
        tokens = self._system.tokens(draw(self._seed, STREAM_SYSTEM, 0, 0, prompt))
        key = stream_key(0, STREAM_BLOCK, prompt, 0)
        return _Talk(tokens, [_identity(key, b) for b in range(tokens // self.block_tokens)], number)

    def _name(self, talk: _Talk, user: int, blocks: int) -> None:
        key = stream_key(0, STREAM_BLOCK, user, talk.number + 1)
        talk.ids += [_identity(key, b) for b in range(len(talk.ids), blocks)]


def _identity(key: int, block: int) -> int:
    return draw_at(key, block) >> 1  # 63 bits: fits a signed 64-bit field
