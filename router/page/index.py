"""The page itself: one document without anything from elsewhere."""

from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources

import msgspec

from stageline.engine.causes import SHOWN
from stageline.plan.report import serving_text
from stageline.plan.schema import Plan
from stageline.report.palette import BUSY, CAUSE_COLOURS, DARK_BUSY, DARK_CAUSE_COLOURS
from stageline.runtime.deployment import Deployment
from stageline.units import figure_text

CONTENT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"


class PageFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What stands on the page and does not change. `routes`: (method, path, meaning)."""

    deployment: Deployment
    version: str
    names: Sequence[str]
    dilation: float
    scheduling: Sequence[str]  # by pool
    routes: Sequence[tuple[str, str, str]]
    dashboards: str  # address of Grafana; empty: none is known
    wants_key: bool


def page_text(facts: PageFacts) -> str:
    """The document."""
    parts = {
        "TITLE": escape(title_of(facts.deployment)),
        "STYLE": _colours() + _asset("index.css"),
        "FACTS": "".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in _facts(facts)),
        "ROUTES": "".join(_route(*route) for route in facts.routes),
        "DASHBOARDS": _dashboards(facts.dashboards),
        "KEY": escape("  -H 'Authorization: Bearer KEY' \\\n") if facts.wants_key else "",
        "MODEL": escape(facts.names[0]),
        "ORDER": msgspec.json.encode(["busy", *SHOWN]).decode(),
        "SCRIPT": _asset("index.js"),
    }
    first, *rest = _asset("index.html").split("%%")
    return first + "".join(parts[name] + text for name, text in zip(rest[::2], rest[1::2], strict=True))


def devices_text(plan: Plan) -> str:
    """Such as "2 x 8 h100-sxm": replicas, devices of one, their name."""
    each = sum(stage.devices for stage in plan.stages)
    return f"{plan.replicas} x {each} {plan.device}" if plan.replicas > 1 else f"{each} x {plan.device}"


def title_of(deployment: Deployment) -> str:
    """Each pool's model and devices."""
    plans = (pool.route.plan for pool in deployment.fleet.pools)
    return ", ".join(f"{plan.model} on {devices_text(plan)}" for plan in plans)


def _facts(facts: PageFacts) -> Iterable[tuple[str, str]]:
    pools = facts.deployment.fleet.pools
    models = facts.deployment.models
    yield "model", ", ".join(models)
    if tuple(facts.names) != models:
        yield "served as", ", ".join(facts.names)
    for pool, scheduling in zip(pools, facts.scheduling, strict=True):
        of = f"{pool.name}: " if len(pools) > 1 else ""
        yield from ((of + name, text) for name, text in _pool_facts(pool.route.plan, scheduling))
    yield "dilation", f"{figure_text(facts.dilation)}: wall time per emulated time"
    yield facts.deployment.kind, facts.deployment.digest[:16]
    yield "Stageline", facts.version


def _pool_facts(plan: Plan, scheduling: str) -> Iterable[tuple[str, str]]:
    yield "emulated hardware", devices_text(plan)
    visits = f", {len(plan.visits)} visits of a token" if len(plan.visits) != len(plan.stages) else ""
    replicas = f", {plan.replicas} replicas" if plan.replicas > 1 else ""
    yield "pipeline", f"{len(plan.stages)} stages{visits}{replicas}"
    yield "context", f"{plan.max_context_tokens:,} tokens" if plan.max_context_tokens else "not limited"
    yield "serving engine", serving_text(plan) or "none named: the plain scheduler"
    yield "scheduling", scheduling


def _route(method: str, path: str, meaning: str) -> str:
    shown = f"<code>{escape(path)}</code>"
    if method == "GET" and "{" not in path:
        shown = f'<a href="{escape(path.removeprefix("/") or ".")}">{shown}</a>'
    return f"<tr><td>{method}</td><td>{shown}</td><td>{escape(meaning.replace('`', ''))}</td></tr>"


def _dashboards(address: str) -> str:
    if not address:
        return (
            "Dashboards for Grafana come with Stageline; <code>--dashboards URL</code> of the router links them here."
        )
    return f'<a href="{escape(address)}">Grafana dashboards</a>'


def _colours() -> str:
    light = "".join(f"--{name}:{colour};" for name, colour in {"busy": BUSY, **CAUSE_COLOURS}.items())
    dark = "".join(f"--{name}:{colour};" for name, colour in {"busy": DARK_BUSY, **DARK_CAUSE_COLOURS}.items())
    return f":root{{{light}}}\n@media(prefers-color-scheme:dark){{:root{{{dark}}}}}\n"


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath("assets", name).read_text(encoding="utf-8")
