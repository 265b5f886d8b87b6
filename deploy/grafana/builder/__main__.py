"""Writes deploy/grafana/dashboards/*.json: `scripts/dashboards`."""

import json
from pathlib import Path

from deploy.grafana.builder.dashboards import ALL

FOLDER = Path(__file__).resolve().parent.parent / "dashboards"

for name, dashboard in ALL.items():
    FOLDER.joinpath(f"{name}.json").write_text(json.dumps(dashboard.json(), indent=1) + "\n")
