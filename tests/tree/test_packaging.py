"""The wheel carries generated code: it is right, and the runtime floors are what the generator stamps."""

import re
import subprocess
import sys
import tomllib
from importlib import util
from pathlib import Path
from typing import Any

import pytest

PROTO = """syntax = "proto3";
package stageline.v1;
message PingRequest { int64 sent_ns = 1; }
message PingResponse { int64 sent_ns = 1; }
service PingService { rpc Ping(stream PingRequest) returns (stream PingResponse); }
"""

CALL = """
import sys
sys.path.insert(0, sys.argv[1])
from stageline.v1 import ping_pb2, ping_pb2_grpc
assert ping_pb2.__file__.startswith(sys.argv[1])
print(ping_pb2.PingRequest.FromString(ping_pb2.PingRequest(sent_ns=7).SerializeToString()).sent_ns)
print(ping_pb2_grpc.PingServiceStub.__module__)
"""


@pytest.fixture(scope="module")
def hook(root: Path) -> Any:
    """The build hook as a module."""
    spec = util.spec_from_file_location("hatch_build", root / "hatch_build.py")
    assert spec is not None and spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def generated(hook: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small project of one proto file, generated."""
    project = tmp_path_factory.mktemp("project")
    (project / "proto/stageline/v1").mkdir(parents=True)
    (project / "proto/stageline/v1/ping.proto").write_text(PROTO)
    (project / "stageline/v1").mkdir(parents=True)
    (project / "stageline/v1/gone_pb2.py").write_text("# generated from a proto file that is no more\n")
    (project / "stageline/__init__.py").touch()
    hook.generate(project)
    return project


def test_generated_code_imports_and_round_trips(generated: Path) -> None:
    command = [sys.executable, "-c", CALL, str(generated)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=generated)
    assert done.stdout.split() == ["7", "stageline.v1.ping_pb2_grpc"]


def test_generation_replaces_the_whole_package_and_leaves_nothing_else(generated: Path) -> None:
    made = sorted(path.name for path in (generated / "stageline/v1").iterdir())
    assert [name for name in made if name != "__pycache__"] == [
        "__init__.py",
        "ping_pb2.py",
        "ping_pb2.pyi",
        "ping_pb2_grpc.py",
        "ping_pb2_grpc.pyi",
    ]
    assert sorted(path.name for path in generated.iterdir()) == ["proto", "stageline"]


def test_a_checkout_without_proto_files_is_refused(hook: Any, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no proto files in"):
        hook.generate(tmp_path)


def test_runtime_floors_are_what_the_generator_stamps(generated: Path, root: Path) -> None:
    code = generated / "stageline/v1"
    grpc = re.search(r"GRPC_GENERATED_VERSION = '([\d.]+)'", (code / "ping_pb2_grpc.py").read_text())
    protobuf = re.search(r"Domain\.PUBLIC,\s+(\d+),\s+(\d+),\s+(\d+),", (code / "ping_pb2.py").read_text())
    assert grpc and protobuf

    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    floors = dict(line.split(">=") for line in project["dependencies"])
    assert floors["grpcio"] == floors["grpcio-health-checking"] == floors["grpcio-reflection"] == grpc[1]
    assert floors["protobuf"] == ".".join(protobuf.groups())


def test_the_generator_of_the_wheel_is_the_generator_of_the_developer(root: Path) -> None:
    document = tomllib.loads((root / "pyproject.toml").read_text())
    developer = set(document["project"]["optional-dependencies"]["dev"])
    generator = {line for line in document["build-system"]["requires"] if "==" in line}
    assert len(generator) == 2
    assert generator <= developer


def test_every_requirement_is_pinned_for_developers(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] + project["optional-dependencies"]["dev"]
    names = {re.split(r"[><=\[]", line)[0] for line in wanted}
    lines = (root / "constraints/dev.txt").read_text().split()
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)
    pinned = {line.split("==")[0].lower().replace("_", "-") for line in lines}
    assert names - pinned == set()
