"""A tokenizer.json counts prompts, and writes outputs that count as the tokens asked for."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from router.api.generation import GenerationParams, OutputLengths
from router.api.tokenizer import SYNTHETIC, open_tokenizer
from router.api.tokenizer_file import FileTokenizer
from stageline.errors import BadInput
from tests.tokenizer import trained


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> FileTokenizer:
    return FileTokenizer(trained(tmp_path_factory.mktemp("bpe") / "tokenizer.json"))


def test_it_counts_as_the_library_does(tokenizer: FileTokenizer, tmp_path: Path) -> None:
    library = Tokenizer.from_file(str(trained(tmp_path / "tokenizer.json")))
    text = "A word of nonsense: xyzzy, plugh.\n"
    assert tokenizer.ids(text) == library.encode(text, add_special_tokens=False).ids
    assert tokenizer.count(text) == len(tokenizer.ids(text)) != SYNTHETIC.count(text)


@given(seed=st.integers(0, 1 << 40), tokens=st.integers(1, 300))
def test_outputs_count_as_the_tokens_that_were_asked_for(tokenizer: FileTokenizer, seed: int, tokens: int) -> None:
    lengths = OutputLengths("max", 0, tokenizer)
    output = lengths.output(GenerationParams(prompt=b"x", prompt_tokens=1, max_tokens=tokens, seed=seed), 0)
    assert tokenizer.count(output.text(0, output.tokens)) == tokens == output.tokens
    assert output.text(0, 1) + output.text(1, tokens) == output.text(0, tokens)
    assert "".join(json.loads(output.encoder()(n)) for n in range(tokens)) == output.text(0, tokens)


@given(text=st.text(max_size=60))
def test_pieces_are_the_text_token_by_token(tokenizer: FileTokenizer, text: str) -> None:
    assert "".join(tokenizer.pieces(text)) == text
    assert len(tokenizer.pieces(text)) == max(1, tokenizer.count(text))


def test_echo_and_half_a_surrogate_pair(tokenizer: FileTokenizer) -> None:
    output = OutputLengths("echo", 0, tokenizer).output(
        GenerationParams(prompt=b"x", prompt_tokens=1, prompt_text="the \ud800 end"), 0
    )
    assert output.text(0, output.tokens) == "the ? end"
    assert output.tokens == tokenizer.count("the ? end")


def test_the_prefix_cache_sees_the_ids_of_the_file(tokenizer: FileTokenizer) -> None:
    params = GenerationParams(prompt=b"the end", prompt_tokens=2)
    assert params.token_ids(tokenizer) == tokenizer.ids("the end") != params.token_ids(SYNTHETIC)
    assert GenerationParams(prompt=b"[7]", prompt_tokens=1, ids=(7,)).token_ids(tokenizer) == (7,)


def test_a_vocabulary_without_common_words_writes_its_own(tmp_path: Path) -> None:
    words = [f"wort{chr(97 + n)}" for n in range(20)]
    made = Tokenizer(models.WordLevel({word: n for n, word in enumerate([*words, "?"])}, unk_token="?"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.enable_truncation(3)
    made.save(str(tmp_path / "words.json"))
    tokenizer = FileTokenizer(tmp_path / "words.json")
    assert {tokenizer.word(1, n).strip() for n in range(400)} == set(words)
    assert tokenizer.count(" ".join(words)) == 20


def test_a_tokenizer_whose_tokens_do_not_add_up_is_refused(tmp_path: Path) -> None:
    path = trained(tmp_path / "small.json", size=260)  # hardly more than the bytes
    with pytest.raises(BadInput, match=r"--tokenizer: has \d+ words that are one token"):
        open_tokenizer(path)


def test_a_file_that_is_not_a_tokenizer_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(BadInput, match=r"bad\.json"):
        open_tokenizer(tmp_path / "bad.json")
    with pytest.raises(BadInput, match="can't be read"):
        open_tokenizer(tmp_path / "missing.json")


def test_without_a_file_it_is_the_synthetic_one() -> None:
    assert open_tokenizer(None) is SYNTHETIC
    assert SYNTHETIC.count("".join(SYNTHETIC.word(5, n) for n in range(50))) == 50
