"""The recipes for a model, a device, a link and a serving engine."""

from tests.recipes.scratch import ROOT, Scratch, named

CATALOG = "stageline/catalog"
CHECKED = "tests/unit/catalog/test_catalog.py"


def copied(folder: str, name: str) -> str:
    """An entry of the catalogue under the name `mine`."""
    return (ROOT / CATALOG / folder / f"{name}.toml").read_text().replace(f'name = "{name}"', 'name = "mine"')


def test_a_model(scratch: Scratch) -> None:
    scratch.add(f"{CATALOG}/models/mine.toml", copied("models", "llama-3.1-8b").replace("repeat = 32", "repeat = 16"))
    oracles = "tests/unit/model/test_summary.py"
    total = "\n\ndef test_mine() -> None:\n    assert billions(model('mine').total_params(), 1) == 4.5\n"
    (scratch.root / oracles).write_text((scratch.root / oracles).read_text() + total)
    assert scratch.changed() == {f"{CATALOG}/models/mine.toml", oracles} <= named("A model", NAME="mine")
    assert "[published] config.json of" in scratch.stageline("models", "show", "mine")
    scratch.check(f"{oracles}::test_mine", f"{CHECKED}::test_models_load[mine]")


def test_a_device(scratch: Scratch) -> None:
    scratch.add(f"{CATALOG}/devices/mine.toml", copied("devices", "h100-sxm"))
    scratch.insert(CHECKED, '        ("h100-sxm", 80,', '        ("mine", 80, 3.35, 989, 50),\n')
    assert scratch.changed() == {f"{CATALOG}/devices/mine.toml", CHECKED} <= named("A device", NAME="mine")
    assert "aiconfigurator" in scratch.stageline("devices", "show", "mine")
    assert "llama-3.1-8b on 1 mine" in scratch.stageline("plan", "llama-3.1-8b", "mine")
    scratch.check(CHECKED, "-k", "mine")


def test_a_link(scratch: Scratch) -> None:
    scratch.add(f"{CATALOG}/links/mine.toml", copied("links", "ndr-infiniband"))
    assert scratch.changed() == {f"{CATALOG}/links/mine.toml"} <= named("A link", NAME="mine")
    assert "on 2 h100-sxm" in scratch.stageline("plan", "llama-3.1-70b", "h100-sxm", "--network", "mine")
    scratch.check(f"{CHECKED}::test_links_load[mine]")


def test_a_serving_engine(scratch: Scratch) -> None:
    text = copied("engines", "vllm-v1").replace('default_for = ["gpu", "tpu"]', "default_for = []")
    scratch.add(f"{CATALOG}/engines/mine.toml", text)
    assert scratch.changed() == {f"{CATALOG}/engines/mine.toml"} <= named("A serving engine", NAME="mine")
    assert "get_batch_defaults" in scratch.stageline("engines", "show", "mine")
    assert "mine 0.19" in scratch.stageline("plan", "llama-3.1-8b", "h100-sxm", "--serving-engine", "mine")
