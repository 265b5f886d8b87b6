"""Grafana dashboards as code: `scripts/dashboards` writes deploy/grafana/dashboards/*.json from here."""
