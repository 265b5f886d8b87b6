"""Which Stageline this is, beyond its version number: a hash of the sources of its servers.

`python -m stageline.runtime.sources` prints it, so that a launcher can ask an image for its own.
"""

import hashlib
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("router", "stage_server", "stageline")
GENERATED = Path("stageline", "v1")  # of the protocol, which both ends of a connection compare anyway


def sources() -> str:
    """Sixteen hex digits that change with any module of a server, of a launcher or of what they share."""
    found = hashlib.sha256()
    for package in PACKAGES:
        spec = find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            base = Path(folder)
            for path in sorted(base.rglob("*.py")):
                name = package / path.relative_to(base)
                if not name.is_relative_to(GENERATED):
                    found.update(f"{name.as_posix()} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()[:16]


if __name__ == "__main__":
    print(sources())
