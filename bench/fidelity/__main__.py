"""The scoreboard: emulates every published measurement with Stageline's planner and engine.

    python -m bench.fidelity --data DIR            Markdown on stdout
    python -m bench.fidelity --data DIR -o OUT     also OUT/fidelity.md, fidelity.json and the scatter plot

DIR holds measured/ with the public timings that docs/fidelity.md names, and kernels/ with aiconfigurator's tables.
"""

import argparse
import sys
from pathlib import Path

from bench.fidelity import ladder, mlenergy, rtx, sessions, static
from bench.fidelity.board import Row, document, markdown


def every_row(data: Path, out: Path | None) -> list[Row]:
    """The rows of all systems; `out` receives plots."""
    systems = (static.ring, static.infersim, static.splitwise, sessions.both, ladder.ladder)
    plain = [row for system in systems for row in system()]
    return [*rtx.rows(data, out), *plain, *static.kimi(data), *mlenergy.rows(data)]


def main() -> None:
    """Emulate, print and write."""
    parser = argparse.ArgumentParser(prog="python -m bench.fidelity", description="Emulated against measured.")
    parser.add_argument("--data", type=Path, required=True, help="folder with measured/ and kernels/")
    parser.add_argument("-o", "--output", type=Path, help="folder for fidelity.md, fidelity.json and plots")
    asked = parser.parse_args()
    if asked.output:
        asked.output.mkdir(parents=True, exist_ok=True)
    rows = every_row(asked.data, asked.output)
    table = markdown(rows)
    sys.stdout.write(table)
    if asked.output:
        (asked.output / "fidelity.md").write_text(table)
        (asked.output / "fidelity.json").write_bytes(document(rows))


if __name__ == "__main__":
    main()
