"""What HTTP and gRPC share: check a request, decide its output, hand it to the live session."""

import asyncio
from array import array
from typing import NamedTuple

from router.api.generation import MAX_CHOICES, GenerationParams, Output, OutputLengths
from router.api.prompts import ContextTooLong
from router.api.tokenizer import Tokenizer
from router.api.tokens import block_hashes
from router.live.models import ServedModel, ServedModels
from router.live.session import LiveSession
from router.live.stream import Signal, Stream
from router.live.supervisor import LiveSupervisor
from stageline.engine.types import Request
from stageline.errors import BadInput
from stageline.report.spans.context import TraceContext
from stageline.workload.rows import MAX_PRIORITY

_LIGHT_TOKENS = 4096  # that are looked at in the event loop to prepare a call, some milliseconds
_NAMED_TOKENS = 1 << 17  # of all answers of a call, whose blocks the prefix cache may find again
_SHAPE_TOKENS = 256  # as much work as the values of an output with a shape are


class Choice(NamedTuple):
    """One output of a reply."""

    output: Output
    stream: Stream


class Reply:
    """All choices of one call, `n` of each prompt. `wait` returns when tokens are due or a choice has ended.

    `gaps`: their streams keep the times between tokens. Always `close` it.
    """

    def __init__(
        self, session: LiveSession, signal: Signal, choices: list[Choice], n: int, *, gaps: bool = False
    ) -> None:
        self._session, self.choices, self.n, self.gaps = session, choices, n, gaps
        self.wait = signal.wait

    def close(self) -> None:
        """The client has what it wanted, or has left: choices that have not ended are cancelled."""
        for choice in self.choices:
            if not choice.stream.ended:
                self._session.cancel(choice.stream)


class _Prepared(NamedTuple):
    """One output, and the identities of the blocks of its prompt and of itself."""

    params: GenerationParams
    output: Output
    hash_ids: tuple[int, ...] = ()
    output_hash_ids: tuple[int, ...] = ()


class LiveService:
    """The live side of a router."""

    def __init__(
        self, supervisor: LiveSupervisor, lengths: OutputLengths, tokenizer: Tokenizer, models: ServedModels
    ) -> None:
        self.supervisor, self._lengths, self.tokenizer, self.models = supervisor, lengths, tokenizer, models
        self.dilation = supervisor.options.dilation

    async def submit(
        self,
        model: ServedModel,
        params_list: list[GenerationParams],
        n: int,
        *,
        priority: int = 0,
        conversation: str = "",
        parent: TraceContext | None = None,
        most: int = MAX_CHOICES,
        gaps: bool = False,
    ) -> Reply:
        """One request per params and choice. All arrive together, as children of the caller's span `parent`.

        `gaps`: keep the times between tokens.
        Raises BadInput, Busy or Unavailable.
        """
        if abs(priority) > MAX_PRIORITY:
            raise BadInput("priority", priority, f"not between -{MAX_PRIORITY} and {MAX_PRIORITY}")
        if not 1 <= n * len(params_list) <= most:
            raise BadInput("n", n, f"1 to {most} outputs can be asked for at once")
        self.supervisor.open_session(n * len(params_list))  # refuses before the outputs are written
        prepared = await self._prepared(model, params_list, n)
        live = self.supervisor.open_session(len(prepared))
        index, arrival_ns = live.next_arrival()
        requests = [
            Request(
                index=index + number,
                arrival_ns=arrival_ns,
                prompt_tokens=one.params.prompt_tokens,
                output_tokens=one.output.tokens,
                max_output_tokens=one.output.max_tokens,
                priority=priority,
                conversation=conversation,
                hash_ids=one.hash_ids,
                output_hash_ids=one.output_hash_ids,
                model=model.asked,
            )
            for number, one in enumerate(prepared)
        ]
        signal = Signal()
        streams = live.submit(requests, signal, parent)
        for stream in streams if gaps else ():
            stream.gaps_ns = array("q")
        choices = [Choice(one.output, stream) for one, stream in zip(prepared, streams, strict=True)]
        return Reply(live, signal, choices, n, gaps=gaps)

    async def _prepared(self, model: ServedModel, params_list: list[GenerationParams], n: int) -> list[_Prepared]:
        """All outputs, by prompt and choice. What takes long is done beside the event loop, which serves everybody."""
        for params in params_list:
            _check(params, model.max_context_tokens)
        drawn = [[self._lengths.drawn_for(params) for _ in range(n)] for params in params_list]
        named = bool(model.block_tokens)
        weight = n * sum(
            self._weight(params, max(row), named=named) for params, row in zip(params_list, drawn, strict=True)
        )
        if weight > _LIGHT_TOKENS:
            return await asyncio.to_thread(self._prepare, model, params_list, drawn)
        return self._prepare(model, params_list, drawn)

    def _weight(self, params: GenerationParams, drawn: int, *, named: bool) -> int:
        """About how many tokens have to be looked at to prepare one choice."""
        prompt = params.prompt_tokens
        output = max(params.max_tokens, params.exact_tokens, params.min_tokens, drawn)
        weight = prompt + output if named else 0
        weight += prompt if self._lengths.echo else 0
        weight += output if params.stop else 0
        return weight + (output + _SHAPE_TOKENS if params.shape else 0)

    def _prepare(
        self, model: ServedModel, params_list: list[GenerationParams], drawn: list[list[int]]
    ) -> list[_Prepared]:
        prepared, choices, limit, block = [], sum(map(len, drawn)), model.max_context_tokens, model.block_tokens
        for params, row in zip(params_list, drawn, strict=True):
            hash_ids = block_hashes(params.token_ids(self.tokenizer), block) if block else ()
            for choice, length in enumerate(row):
                output = self._lengths.output(params, choice, drawn=length, choices=choices)
                if params.prompt_tokens + output.tokens > limit:
                    output = self._lengths.shortened(output, limit - params.prompt_tokens)
                names = self._output_hash_ids(params, output, block, _NAMED_TOKENS // choices)
                prepared.append(_Prepared(params, output, hash_ids, names))
        return prepared

    def _output_hash_ids(self, params: GenerationParams, output: Output, block: int, most: int) -> tuple[int, ...]:
        """Identities of the blocks that the answer completes, as the prompt of the next turn will name them.

        `block`: tokens of one; 0: none are wanted. Of an answer of more than `most` tokens the blocks after these have
        none: nothing will find them.
        """
        tokens = min(output.tokens, most)
        first = params.prompt_tokens // block if block else 0
        end = (params.prompt_tokens + tokens) // block if block else 0
        if first == end:
            return ()
        ids = params.next_ids(output.said(tokens), self.tokenizer)
        return block_hashes(ids[first * block : end * block], block)


def _check(params: GenerationParams, limit: int) -> None:
    """Raises ContextTooLong or BadInput. `limit`: tokens of the model's context."""
    asked = params.prompt_tokens + max(params.max_tokens, params.exact_tokens, params.min_tokens, 1)
    if asked > limit:
        raise ContextTooLong(
            f"This model's maximum context length is {limit} tokens. However, you requested {asked} tokens "
            f"({params.prompt_tokens} in the prompt, {asked - params.prompt_tokens} in the output). Please reduce "
            "the length of the prompt or of the output."
        )
    if not params.prompt_tokens:
        raise BadInput("prompt", None, "it is empty", "send at least one token")
