"""YAML that is written parses to the same values."""

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from stageline.cluster.yaml_text import Alias, Anchor, Flow, Note, Spaced, Yaml, emit

AWKWARD = ["no", "1e3", "0x1", "1:30", "~", "-", "#", "2026-01-01", "0o7", "=", "<<", "_1", ".5", "+.inf", "\u2028"]
BROKEN = ["", "a: b", "- a", "two\nlines\n", "two\nlines", "a\n\n b\n", "\n", " x\ny", "a \nb", "a\n#b\n\n"]
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"])) | st.sampled_from(AWKWARD + BROKEN)
KEYS = TEXT.filter(lambda text: text != "<<")
SCALARS = TEXT | st.integers() | st.booleans() | st.none() | st.floats(allow_nan=False, allow_infinity=False, width=16)
TREES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=12
)


@settings(max_examples=50)
@given(st.dictionaries(KEYS, TREES))
def test_what_is_written_reads_back(document: dict[str, Yaml]) -> None:
    assert yaml.safe_load(emit(document) if document else "{}") == document


def test_comments_anchors_and_flow_lists() -> None:
    text = emit(
        Spaced(
            {
                "x-base": Anchor("base", {"image": "one", "ports": Flow(["8000:8000", "a"])}),
                "service": {"<<": Alias("base"), "restart": Note("It ends\nby itself.", "no")},
            }
        )
    )
    assert text == (
        'x-base: &base\n  image: one\n  ports: ["8000:8000", a]\n\n'
        'service:\n  <<: *base\n  # It ends\n  # by itself.\n  restart: "no"\n'
    )
    assert yaml.safe_load(text)["service"] == {"image": "one", "ports": ["8000:8000", "a"], "restart": "no"}
