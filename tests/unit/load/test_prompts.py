"""Prompts have exactly the tokens asked for, and share a beginning only where the trace says so."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stageline.engine.types import Request
from stageline.load.conversation import Conversation, ConversationKind, Prompts, Template
from stageline.load.prompts import id_alphabet, prompt_of, word_alphabet
from stageline.workload import open_workload

BOTH = [id_alphabet(0), word_alphabet(0)]


def request(index: int = 0, tokens: int = 10, hash_ids: tuple[int, ...] = ()) -> Request:
    return Request(
        index=index, arrival_ns=0, prompt_tokens=tokens, output_tokens=3, max_output_tokens=3, hash_ids=hash_ids
    )


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 60_000), st.integers(0, 1 << 40))
def test_as_many_ids_as_asked(tokens: int, index: int) -> None:
    prompt = prompt_of(request(index, tokens), BOTH[0], 0)
    ids = msgspec.json.decode("[" + prompt[:-1] + "]", type=list[int])
    assert len(ids) == tokens
    assert all(1000 <= i < 10_000 for i in ids)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 60_000))
def test_as_many_words_as_asked(tokens: int) -> None:
    words = prompt_of(request(3, tokens), BOTH[1], 0)[:-1].split(" ")
    assert len(words) == tokens
    assert {len(word) for word in words} == {4}


@pytest.mark.parametrize("alphabet", BOTH, ids=["ids", "words"])
def test_no_two_requests_begin_alike(alphabet: object) -> None:
    heads = {prompt_of(request(i, 16), alphabet, 0) for i in range(20_000)}  # type: ignore[arg-type]
    assert len(heads) == 20_000


def test_seeds_and_positions_decide_all() -> None:
    again = id_alphabet(0).own(5, 100)
    assert again == BOTH[0].own(5, 100)
    assert again != id_alphabet(1).own(5, 100)
    assert again != BOTH[0].shared(5, 100)
    assert BOTH[0].own(5, 200).startswith(again)


def test_equal_hash_ids_are_equal_blocks() -> None:
    one = prompt_of(request(1, 40, (7, 8)), BOTH[0], 16)
    other = prompt_of(request(2, 40, (7, 9)), BOTH[0], 16)
    assert one[: 16 * 5] == other[: 16 * 5]
    assert one[16 * 5 : 32 * 5] != other[16 * 5 : 32 * 5]
    assert one[32 * 5 :] != other[32 * 5 :]  # what no hash id names is the request's own


def test_the_last_block_may_be_cut() -> None:
    assert len(prompt_of(request(1, 20, (7, 8, 9)), BOTH[0], 16)) == 20 * 5
    assert prompt_of(request(1, 20, (7, 8)), BOTH[0], 16) == prompt_of(request(2, 20, (7, 8, 3)), BOTH[0], 16)


def test_conversations_of_a_workload_grow_by_their_hash_ids() -> None:
    workload = open_workload(
        "sessions:rate=1,system_prompts=1,users=1,turns=3,system=40,question=20,output=10,requests=3"
    )
    prompts = [prompt_of(workload.take(), BOTH[0], workload.hash_block_tokens) for _ in range(3)]  # type: ignore[arg-type]
    assert [len(prompt) // 5 for prompt in prompts] == [60, 90, 120]
    assert prompts[1].startswith(prompts[0])
    assert prompts[2].startswith(prompts[1])


def messages(conversation: Conversation) -> list[str]:
    return [message["content"] for message in msgspec.json.decode(conversation.next_prompt())]


def test_a_chat_grows_by_its_messages() -> None:
    conversation = Prompts("chat", 0).conversation(request(0, 20))
    first = messages(conversation)
    assert [len(text.split()) for text in first] == [20 - 4 - 3]  # the template's share
    assert conversation.prompt_tokens == 20
    conversation.add_reply("so it goes", 3)
    second = messages(conversation)
    assert second[:2] == [*first, "so it goes"]
    assert len(second[2].split()) == 20 - 8
    assert conversation.prompt_tokens == 20 + 3 + 20


def test_the_servers_own_template_counts() -> None:
    conversation = Prompts("chat", 0, template=Template(1, 5)).conversation(request(0, 20))
    assert [len(text.split()) for text in messages(conversation)] == [19]
    conversation.add_reply("so it goes", 3)
    assert len(messages(conversation)[2].split()) == 15
    assert conversation.prompt_tokens == 43


def test_text_grows_by_the_reply_itself() -> None:
    conversation = Prompts("text", 0).conversation(request(0, 3))
    first = msgspec.json.decode(conversation.next_prompt())
    conversation.add_reply(" so it goes", 3)
    second = msgspec.json.decode(conversation.next_prompt())
    assert second.startswith(f"{first} so it goes ")
    assert len(second.split(" ")) == conversation.prompt_tokens == 9


@pytest.mark.parametrize("kind", ["ids", "text", "chat"])
def test_even_the_smallest_prompt_has_a_token(kind: ConversationKind) -> None:
    conversation = Prompts(kind, 0).conversation(request(0, 1))
    assert len(conversation.next_prompt()) > 2
    assert conversation.prompt_tokens == {"ids": 1, "text": 1, "chat": 8}[kind]
