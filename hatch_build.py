"""Generates `stageline/v1` from `proto/stageline/v1`: on every build of the wheel, and by hand with `scripts/generate`.

The path of a proto file is both its proto package and its Python package, so that protoc's imports work unchanged. The
result is git-ignored; the wheel ships it, and editable installs find it in the source tree.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from importlib import resources
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = Path("stageline", "v1")
INIT = '"""The wire contract, generated from proto/stageline/v1. Do not edit: change the proto files."""\n'
PLUGINS = ("mypy", "mypy_grpc")


def generate(root: Path) -> None:
    """Replace `root/stageline/v1` by code generated from `root/proto`. Raises SystemExit with the reason."""
    sources = sorted((root / "proto" / PACKAGE).glob("*.proto"))
    if not sources:
        raise SystemExit(f"no proto files in {root / 'proto' / PACKAGE}: the checkout is incomplete")
    with tempfile.TemporaryDirectory(dir=root, prefix=".generate-") as folder:
        subprocess.run(protoc(root / "proto", sources, Path(folder)), check=True)
        made = Path(folder) / PACKAGE
        (made / "__init__.py").write_text(INIT)
        shutil.rmtree(root / PACKAGE, ignore_errors=True)
        made.rename(root / PACKAGE)


def protoc(include: Path, sources: list[Path], out: Path) -> list[str]:
    """The command line that writes messages, services and the type stubs of both into `out`."""
    search = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    plugins = []
    for name in PLUGINS:
        program = shutil.which(f"protoc-gen-{name}", path=search)
        if program is None:
            raise SystemExit(f"protoc-gen-{name} not found on {search}: install mypy-protobuf")
        plugins += [f"--plugin=protoc-gen-{name}={program}", f"--{name}_out=quiet:{out}"]
    well_known = str(resources.files("grpc_tools") / "_proto")
    outputs = [f"--python_out={out}", f"--grpc_python_out={out}", *plugins]
    return [
        *(sys.executable, "-m", "grpc_tools.protoc", f"-I{include}", f"-I{well_known}"),
        *(*outputs, *(str(source) for source in sources)),
    ]


class GenerateHook(BuildHookInterface[Any]):
    """Hatch's build hook, which calls `generate`."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before hatch collects files, for standard and editable builds alike."""
        generate(Path(self.root))


if __name__ == "__main__":
    generate(Path(__file__).resolve().parent)
