"""`sessions:` workloads: users hold conversations, and every turn sends the whole conversation again.

User u of S x U has system prompt u mod S. Request i is the next turn of user i mod (S x U); after its last turn a user
begins a new conversation with the same system prompt. The prompt of a turn is the system prompt, all earlier questions
and answers of the conversation, and its own question. Arrivals are open-loop: a turn does not wait for the
answer before it.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import takewhile

import msgspec

from stageline.engine.rng import STREAM_BLOCK, STREAM_SYSTEM, draw, draw_at, stream_key
from stageline.engine.types import Request
from stageline.errors import BadInput
from stageline.units import NS_PER_S, rounded_ratio
from stageline.workload.arrivals import poisson_times
from stageline.workload.lengths import Length, RequestLengths
from stageline.workload.rows import MAX_TOKENS

MAX_BLOCKS = 1 << 20  # per prompt; bounds the memory of a conversation


class RateStage(msgspec.Struct, frozen=True):
    """A rate in requests per second, and how many seconds it lasts. `seconds` None: without end."""

    rate: Fraction
    seconds: Fraction | None

    @property
    def expected(self) -> Fraction:
        """Expected number of requests, for a stage that ends."""
        return self.rate * (self.seconds or 0)


def staged_times(stages: list[RateStage], seed: int) -> Iterator[int]:
    """Poisson arrivals of one stage after another; arrivals past the end of their stage are dropped."""
    start_ns = 0
    for number, stage in enumerate(stages):
        times = poisson_times(stage.rate, seed, number)
        if stage.seconds is None:
            yield from times
            return
        length_ns = rounded_ratio(stage.seconds.numerator * NS_PER_S, stage.seconds.denominator)
        yield from (start_ns + time_ns for time_ns in takewhile(length_ns.__gt__, times))
        start_ns += length_ns


class _UserState(msgspec.Struct):
    """One user's current conversation. Only one per user is kept, so memory grows with users, not with requests."""

    tokens: int  # of the conversation so far, answers included
    ids: list[int]  # identities of its blocks
    number: int  # how many conversations this user has finished
    turn: int = 0


class Conversations:
    """Makes the requests in order.

    A block of `block_tokens` tokens has an identity. Inside the system prompt it hashes the system prompt's number and
    the position; after it, user, conversation and position. A conversation only grows, so equal identities mean equal
    texts.
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
        lengths: RequestLengths,
        models: Sequence[str] = ("",),
    ) -> None:
        """`models`: what users ask for, one after the other."""
        self._seed, self._turns, self._models = seed, turns, models
        self._prompts, self._users = system_prompts, system_prompts * users
        self.block_tokens = block_tokens
        self._system, self._lengths = system, lengths
        self._states: dict[int, _UserState] = {}

    def request(self, index: int, arrival_ns: int, place: str) -> Request:
        """Request `index`; call in order. Raises BadInput at `place` when the conversation has grown too long."""
        user = index % self._users
        state = self._states.get(user)
        if state is None or state.turn == self._turns:
            state = self._states[user] = self._begin(user, 0 if state is None else state.number + 1)
        question, answer, most = self._lengths.at(user, index // self._users)
        prompt = state.tokens + question
        if prompt > MAX_BLOCKS * self.block_tokens or prompt > MAX_TOKENS:
            reason = f"request {index} has {prompt} tokens, more than {MAX_TOKENS} or than {MAX_BLOCKS} blocks"
            raise BadInput(place, None, reason, "take fewer turns, or longer blocks")
        self._identify(state, user, -(-(prompt + answer) // self.block_tokens))
        first, end = prompt // self.block_tokens, (prompt + answer) // self.block_tokens
        state.tokens, state.turn = prompt + answer, state.turn + 1
        return Request(
            index=index, arrival_ns=arrival_ns, prompt_tokens=prompt, output_tokens=answer, max_output_tokens=most,
            conversation=f"user-{user}/{state.number}", hash_ids=tuple(state.ids[: -(-prompt // self.block_tokens)]),
            output_hash_ids=tuple(state.ids[first:end]), model=self._models[user % len(self._models)],
        )  # fmt: skip

    def _begin(self, user: int, number: int) -> _UserState:
        """A new conversation: the system prompt, and the identities of the blocks that it fills."""
        prompt = user % self._prompts
        tokens = self._system.tokens(draw(self._seed, STREAM_SYSTEM, 0, 0, prompt))
        key = stream_key(0, STREAM_BLOCK, prompt, 0)
        return _UserState(tokens, [_identity(key, b) for b in range(tokens // self.block_tokens)], number)

    def _identify(self, state: _UserState, user: int, blocks: int) -> None:
        """Extends the identities to `blocks` blocks."""
        key = stream_key(0, STREAM_BLOCK, user, state.number + 1)
        state.ids += [_identity(key, b) for b in range(len(state.ids), blocks)]


def _identity(key: int, block: int) -> int:
    return draw_at(key, block) >> 1  # 63 bits: fits a signed 64-bit field
