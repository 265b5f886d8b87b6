"""Damaged catalogue files, configs and plans: a clear error naming the file, or a good value; never a traceback."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stageline.catalog.decode import parse_toml
from stageline.catalog.device_file import device_entry
from stageline.catalog.loader import Catalog
from stageline.catalog.model_file import model_entry
from stageline.engine.fleet import Fleet, HandOver, Pool
from stageline.engine.fleet_check import parse_fleet
from stageline.errors import BadInput, DoesNotFit, UsageError
from stageline.model.hf import import_config
from stageline.plan.build import make_plan
from stageline.plan.options import PlanOptions
from stageline.plan.parse import parse_plan
from stageline.report.fleet_report import fleet_report
from stageline.testing import uniform_plan

SHELF = Catalog()
PLAN = make_plan(SHELF.model("kimi-k2.6").spec, SHELF.device("b200").device, PlanOptions()).plan.canonical()
SHIPPED = files("stageline.catalog")

patient = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.sampled_from(["", "bf16", "gqa", "x" * 50, "\x00"]),
)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner))


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of everything inside a document."""
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value[:5]))
    else:
        return [path]
    return [*([path] if path else []), *(p for key, child in inner for p in places(child, (*path, key)))]


@st.composite
def damaged(draw: st.DrawFn, text: str) -> Any:
    """The document with one value replaced or removed."""
    document = json.loads(text)
    path = draw(st.sampled_from(places(document)))
    inside = document
    for step in path[:-1]:
        inside = inside[step]
    if draw(st.booleans()):
        del inside[path[-1]]
    else:
        inside[path[-1]] = draw(values)
    return document


def shipped(kind: str, name: str) -> str:
    return json.dumps(parse_toml((SHIPPED / kind / f"{name}.toml").read_bytes(), name))


@patient
@given(st.sampled_from(["kimi-k3", "qwen3.6-27b", "deepseek-v3"]).flatmap(lambda n: damaged(shipped("models", n))))
def test_model_files(document: Any) -> None:
    try:
        spec = model_entry(document, "models/x.toml").spec
    except BadInput as error:
        assert str(error).startswith("models/x.toml")
        return
    assert spec.weight_bytes() > 0


@patient
@given(st.sampled_from(["h100-sxm", "wse-3t"]).flatmap(lambda n: damaged(shipped("devices", n))))
def test_device_files(document: Any) -> None:
    try:
        device = device_entry(document, "devices/x.toml").device
    except BadInput as error:
        assert str(error).startswith("devices/x.toml")
        return
    try:
        assert make_plan(SHELF.model("qwen2.5-1.5b").spec, device, PlanOptions()).plan.visits
    except (DoesNotFit, UsageError) as error:
        assert str(error)


@patient
@given(damaged(PLAN.decode()))
def test_plans(document: Any) -> None:
    try:
        parse_plan(json.dumps(document).encode(), "plan.json")
    except BadInput as error:
        assert str(error).startswith("plan.json")


@patient
@given(st.binary(max_size=60))
def test_any_bytes(data: bytes) -> None:
    for read in (parse_toml, parse_plan):
        try:
            read(data, "file")
        except BadInput as error:
            assert str(error).startswith("file")
    with pytest.raises(BadInput, match="file"):
        import_config(data, "file", "x")
    with pytest.raises(BadInput, match="hf_quant_config"):
        import_config(b"{}", "file", "x", data)


@pytest.mark.parametrize(
    "name",
    [
        "moonshotai--Kimi-K3",
        "deepseek-ai--DeepSeek-V3",
        "Qwen--Qwen3-30B-A3B",
        "nvidia--Kimi-K2.6-NVFP4",
        "openai--gpt-oss-20b",
        "Qwen--Qwen3.5-35B-A3B",
        "XiaomiMiMo--MiMo-V2-Flash",
        "zai-org--GLM-5",
        "deepseek-ai--DeepSeek-V4-Flash",
        "google--gemma-4-26B-A4B",
        "stepfun-ai--Step-3.7-Flash",
        "meta-llama--Llama-4-Scout-17B-16E-Instruct",
        "nvidia--Llama-3_3-Nemotron-Super-49B-v1",
        "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    ],
)
def test_configs(shared_data: Path, name: str) -> None:
    text = (shared_data / "configs" / f"{name}.json").read_text()

    @patient
    @given(damaged(text))
    def check(document: Any) -> None:
        try:
            spec = import_config(json.dumps(document).encode(), "config.json", "x")
        except BadInput as error:
            assert str(error).startswith("config.json")
            return
        assert spec.weight_bytes() > 0

    check()


FLEET = Fleet(
    pools=(
        Pool(name="p", plan=uniform_plan(2, kv_block_bytes=9, state_bytes=5, replicas=2), role="prefill"),
        Pool(name="d", plan=uniform_plan(1, kv_block_bytes=9), role="decode", ingress_bytes_per_s=7),
    ),
    hand_over=HandOver(bytes_per_s=9),
).canonical()


@patient
@given(damaged(FLEET.decode()))
def test_fleets(document: Any) -> None:
    try:
        fleet = parse_fleet(json.dumps(document).encode(), "fleet.json")
    except BadInput as error:
        assert str(error).startswith("fleet.json")
        return
    report = fleet_report(fleet)
    assert report.replicas == sum(row.replicas for row in report.pools) >= 2
    assert all(prompt.time_ns > 0 for row in report.transfers for prompt in row.prompts)
