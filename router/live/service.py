"""What HTTP and gRPC share: check a request, decide its output, hand it to the live session."""

from typing import NamedTuple

from router.api.generation import MAX_CHOICES, MAX_SEARCHED_TOKENS, GenerationParams, Output, OutputLengths
from router.api.tokenizer import Tokenizer
from router.api.tokens import block_hashes
from router.live.names import ModelNames
from router.live.session import LiveSession
from router.live.stream import Signal, Stream
from router.live.supervisor import LiveSupervisor
from stageline.engine.types import Request
from stageline.errors import BadInput, UsageError
from stageline.report.spans.context import TraceContext
from stageline.workload.rows import MAX_PRIORITY, MAX_TOKENS


class Choice(NamedTuple):
    """One output of a reply."""

    output: Output
    stream: Stream


class Reply:
    """All choices of one call, `n` of each prompt. `wait` returns when tokens are due or a choice has ended.

    Always `close` it.
    """

    def __init__(self, session: LiveSession, signal: Signal, choices: list[Choice], n: int) -> None:
        self._session, self.choices, self.n = session, choices, n
        self.wait = signal.wait

    def close(self) -> None:
        """The client has what it wanted, or has left: choices that have not ended are cancelled."""
        for choice in self.choices:
            if not choice.stream.ended:
                self._session.cancel(choice.stream)


class LiveService:
    """The live side of a router."""

    def __init__(
        self, supervisor: LiveSupervisor, lengths: OutputLengths, tokenizer: Tokenizer, names: ModelNames
    ) -> None:
        self.supervisor, self._lengths, self.tokenizer, self.names = supervisor, lengths, tokenizer, names
        plan = supervisor.route.plan
        self.max_context_tokens = min(supervisor.route.max_context_tokens, MAX_TOKENS)
        self.dilation = supervisor.options.dilation
        scheduling = supervisor.options.scheduling
        self._block_tokens = (scheduling.hash_block_tokens or plan.block_tokens) if scheduling.prefix_cache else 0

    def check_model(self, name: str) -> None:
        """Raises UnknownModel unless the name, or none, is for the model that is served."""
        if not self.names.knows(name):
            raise UnknownModel(f"The model `{name}` does not exist.")

    def submit(
        self,
        params_list: list[GenerationParams],
        n: int,
        *,
        priority: int = 0,
        conversation: str = "",
        parent: TraceContext | None = None,
    ) -> Reply:
        """One request per params and choice. All arrive together, as children of the caller's span `parent`.

        Raises BadInput, Busy or Unavailable.
        """
        if abs(priority) > MAX_PRIORITY:
            raise BadInput("priority", priority, f"not between -{MAX_PRIORITY} and {MAX_PRIORITY}")
        if not 1 <= n * len(params_list) <= MAX_CHOICES:
            raise BadInput("n", n, f"1 to {MAX_CHOICES} outputs can be asked for at once")
        searched = MAX_SEARCHED_TOKENS // (n * len(params_list))
        outputs = [(params, self._output(params, choice, searched)) for params in params_list for choice in range(n)]
        live = self.supervisor.open_session(len(outputs))
        index, arrival_ns = live.next_arrival()
        requests = [
            Request(
                index=index + number,
                arrival_ns=arrival_ns,
                prompt_tokens=params.prompt_tokens,
                output_tokens=output.tokens,
                max_output_tokens=output.max_tokens,
                priority=priority,
                conversation=conversation,
                hash_ids=self._hash_ids(params),
                output_hash_ids=self._output_hash_ids(params, output),
            )
            for number, (params, output) in enumerate(outputs)
        ]
        signal = Signal()
        streams = live.submit(requests, signal, parent)
        choices = [Choice(output, stream) for (_, output), stream in zip(outputs, streams, strict=True)]
        return Reply(live, signal, choices, n)

    def _hash_ids(self, params: GenerationParams) -> tuple[int, ...]:
        return block_hashes(params.token_ids(self.tokenizer), self._block_tokens) if self._block_tokens else ()

    def _output_hash_ids(self, params: GenerationParams, output: Output) -> tuple[int, ...]:
        """Identities of the blocks that the answer completes, as the prompt of the next turn will name them."""
        block = self._block_tokens
        first = params.prompt_tokens // block if block else 0
        end = (params.prompt_tokens + output.tokens) // block if block else 0
        if first == end:
            return ()
        ids = params.next_ids(output.text(0, output.tokens), self.tokenizer)
        return block_hashes(ids[first * block : end * block], block)

    def _output(self, params: GenerationParams, choice: int, searched: int) -> Output:
        limit = self.max_context_tokens
        asked = params.prompt_tokens + max(params.max_tokens, params.exact_tokens, params.min_tokens, 1)
        if asked > limit:
            raise ContextTooLong(
                f"This model's maximum context length is {limit} tokens. However, you requested {asked} tokens "
                f"({params.prompt_tokens} in the prompt, {asked - params.prompt_tokens} in the output). Please reduce "
                "the length of the prompt or of the output."
            )
        if not params.prompt_tokens:
            raise BadInput("prompt", None, "it is empty", "send at least one token")
        output = self._lengths.output(params, choice, searched)
        if params.prompt_tokens + output.tokens <= limit:
            return output
        return self._lengths.shortened(output, limit - params.prompt_tokens)


class UnknownModel(UsageError):
    """The request is for a model that is not served here."""

    grpc_code = "NOT_FOUND"
    http_status = 404


class ContextTooLong(BadInput):
    """Prompt and output together are longer than the model's context."""

    def __init__(self, text: str) -> None:
        Exception.__init__(self, text)
