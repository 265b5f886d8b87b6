"""One name each, by flag, environment and file; flags win."""

from pathlib import Path

import pytest

from router.settings import RouterSettings, stage_addresses
from stage_server.settings import StageSettings
from stageline.errors import BadInput, UsageError
from stageline.runtime.deployment import Deployment
from stageline.runtime.settings import read_settings
from tests.cluster.plans import small_plan


def test_defaults():
    assert read_settings(StageSettings, [], {}, "p") == StageSettings()


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path):
    file = tmp_path / "settings.toml"
    file.write_text('grpc_port = 1\nstage = 1\nlog_level = "error"\n')
    environ = {"STAGELINE_GRPC_PORT": "2", "STAGELINE_STAGE": "2", "STAGELINE_CONFIG": str(file), "OTHER": "x"}
    settings = read_settings(StageSettings, ["--grpc-port", "3"], environ, "p")
    assert (settings.grpc_port, settings.stage, settings.log_level) == (3, 2, "error")


def test_a_json_file(tmp_path: Path):
    file = tmp_path / "settings.json"
    file.write_text('{"drain_s": 2, "exit_with_parent": true}')
    settings = read_settings(StageSettings, ["--config", str(file)], {}, "p")
    assert (settings.drain_s, settings.exit_with_parent) == (2.0, True)


def test_switches():
    assert read_settings(StageSettings, ["--exit-with-parent"], {}, "p").exit_with_parent
    environ = {"STAGELINE_EXIT_WITH_PARENT": "true"}
    assert not read_settings(StageSettings, ["--no-exit-with-parent"], environ, "p").exit_with_parent
    assert read_settings(StageSettings, [], environ, "p").exit_with_parent


@pytest.mark.parametrize(
    ("argv", "environ", "text"),
    [
        (["--grpc-port", "x"], {}, r"--grpc-port: .*got 'x'"),
        (["--grpc-port", "70000"], {}, r"--grpc-port: .*got '70000'"),
        ([], {"STAGELINE_LOG_LEVEL": "loud"}, r"--log-level: .*got 'loud'"),
    ],
)
def test_a_bad_value_is_named(argv, environ, text):
    with pytest.raises(UsageError, match=text):
        read_settings(StageSettings, argv, environ, "p")


def test_a_bad_file_is_named(tmp_path: Path):
    with pytest.raises(BadInput, match="missing"):
        read_settings(StageSettings, ["--config", str(tmp_path / "missing")], {}, "p")
    (tmp_path / "bad.toml").write_text("= 1")
    with pytest.raises(BadInput, match=r"bad\.toml"):
        read_settings(StageSettings, ["--config", str(tmp_path / "bad.toml")], {}, "p")
    (tmp_path / "odd.toml").write_text("colour = 1")
    with pytest.raises(UsageError, match="colour"):
        read_settings(StageSettings, ["--config", str(tmp_path / "odd.toml")], {}, "p")


def test_stage_addresses_by_list_and_by_pattern():
    plan = Deployment(small_plan(2, replicas=2))
    assert stage_addresses("a:1,b:2, c:3 ,d:4", plan) == [["a:1", "b:2"], ["c:3", "d:4"]]
    assert stage_addresses("s{stage}-{replica}:5", plan) == [["s0-0:5", "s1-0:5"], ["s0-1:5", "s1-1:5"]]


@pytest.mark.parametrize(("text", "reason"), [("a:1", "lists 1 addresses"), ("s{stage}-{pod}", "only {stage}")])
def test_bad_addresses(text, reason):
    with pytest.raises(UsageError, match=reason):
        stage_addresses(text, Deployment(small_plan(2)))


def test_a_seed_fits_the_wire():
    largest = (1 << 63) - 1
    assert read_settings(RouterSettings, ["--seed", str(largest)], {}, "p").seed == largest
    with pytest.raises(UsageError, match="seed"):
        read_settings(RouterSettings, ["--seed", str(largest + 1)], {}, "p")


def test_the_router_needs_a_plan():
    assert RouterSettings().plan == ""


def test_a_file_without_an_end_is_refused() -> None:
    with pytest.raises(BadInput, match="/dev/zero: longer than 1,048,576 bytes"):
        read_settings(StageSettings, ["--config", "/dev/zero"], {}, "p")
