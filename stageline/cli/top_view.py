"""The display of `stageline top`: pure, from a View to what rich prints. Fits 80 columns with 8 and with 59 stages."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from stageline.engine.causes import SHOWN
from stageline.report.palette import DARK_BUSY, DARK_CAUSE_COLOURS
from stageline.runtime.cluster_view import PoolView, StageView, View
from stageline.units import NS_PER_S, bytes_text, figure_text, format_duration

BAR_ROWS = 8  # rows of a stage's bar, two parts each
MAX_STAGE_COLUMNS = 8  # columns of a stage
LABEL_COLUMNS = 7
MAX_NAME_COLUMNS = 16  # of a pool
_ORDER = ("busy", *SHOWN)  # from the bottom up
_COLOURS = {"busy": DARK_BUSY, **DARK_CAUSE_COLOURS}
_LEVELS = " ▁▂▃▄▅▆▇█"


def render(view: View, width: int) -> RenderableType:
    """One frame."""
    trouble = [Text(view.trouble, "bold red")] if view.trouble else []
    parts: list[RenderableType] = [_head(view), *trouble, *_figures(view), *_pools(view), Text("")]
    each = max(1, min(MAX_STAGE_COLUMNS, (width - LABEL_COLUMNS) // max(1, len(view.stages))))
    fits = max(1, (width - LABEL_COLUMNS) // each)
    for first in range(0, len(view.stages), fits):
        parts.append(_strip(view.stages[first : first + fits], each))
    parts += [*_flow(_legend(view), width), *_flow(_means(view), width)]
    return Group(*parts)


def _head(view: View) -> Text:
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append("stageline ", "bold")
    return text.append(f"{view.address}  {view.title}  ").append(view.mode, "bold")


def _figures(view: View) -> list[Text]:
    pace = "no work since" if view.at_rest else f"{figure_text(view.speed)} x wall"
    clock = f"{format_duration(view.emulated_s * NS_PER_S)} ({pace})"
    slip = f"  slip {format_duration(view.slip_s * NS_PER_S)}" if view.slip_s else ""
    emulated = "-" if view.emulated_tokens_per_s is None else f"{view.emulated_tokens_per_s:,.0f}"
    failed = f"  failed {view.failed:,}" if view.failed else ""
    failed += f"  left {view.cancelled:,}" if view.cancelled else ""
    lines = [
        ("requests", f"running {view.running:,}  waiting {view.waiting:,}  finished {view.finished:,}{failed}  "
                     f"{view.requests_per_s:,.1f}/s wall"),
        ("tokens/s", f"{emulated} emulated  {view.tokens_per_s:,.0f} wall   clock {clock}{slip}"),
        ("latency", f"TTFT p50 {_time(view.ttft_s[0])}  p99 {_time(view.ttft_s[1])}   "
                    f"ITL p50 {_time(view.itl_s[0])}  p99 {_time(view.itl_s[1])}"),
        ("in flight", f"{view.in_flight} of {view.credits} credits{_busiest(view)}"),
    ]  # fmt: skip
    return [_line(name, text) for name, text in lines]


def _pools(view: View) -> list[Text]:
    """A line for each pool of a fleet."""
    rows = [_pool_cells(pool) for pool in view.pools]
    columns = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    names = [_shortened(pool.name) for pool in view.pools]
    name_columns = max((len(name) + 2 for name in names), default=0)
    texts = ["  ".join(f"{cell:<{n}}" for cell, n in zip(row, columns, strict=True)).rstrip() for row in rows]
    return [_line(name, text, name_columns) for name, text in zip(names, texts, strict=True)]


def _shortened(name: str) -> str:
    return name if len(name) <= MAX_NAME_COLUMNS else f"{name[: MAX_NAME_COLUMNS - 1]}…"


def _pool_cells(pool: PoolView) -> tuple[str, ...]:
    """The last two only where KV is handed over."""
    moving = f"KV in flight {bytes_text(pool.moving_bytes)} ({pool.moving_requests:,})" if pool.ports else ""
    share = "-" if pool.port_ratio is None else f"{pool.port_ratio:.0%}"
    port = f"port {share}" if pool.ports else ""
    return f"running {pool.running:,}", f"waiting {pool.waiting:,}", moving, port


def _line(name: str, text: str, columns: int = 0) -> Text:
    return Text(no_wrap=True, overflow="ellipsis").append(f"{name:<{max(10, columns)}}", "bold").append(text)


def _time(seconds: float | None) -> str:
    """An upper bound: the edge of a histogram's bucket."""
    return "-" if seconds is None else f"<{format_duration(seconds * NS_PER_S)}"


def _busiest(view: View) -> str:
    known = [s for s in view.stages if s.known]
    if not known:
        return ""
    top = max(known, key=lambda s: s.shares["busy"])
    text = f"   busiest stage {top.stage} ({top.shares['busy']:.0%} busy)"
    return text if view.kv_bound_stage is None else f"{text}   KV binds at {view.kv_bound_stage}"


def _strip(stages: Sequence[StageView], each: int) -> Text:
    """Stacked bars side by side, then KV, then stage numbers."""
    text = Text(no_wrap=True)
    columns = [_cells(stage) for stage in stages]
    for row in range(BAR_ROWS):
        label = {0: "100 % ", BAR_ROWS // 2: " 50 % "}.get(row, "")
        text.append(f"{label:>{LABEL_COLUMNS - 1}} ", "dim")
        for stage, cells in zip(stages, columns, strict=True):
            _cell(text, stage, cells[2 * (BAR_ROWS - 1 - row) :][:2], each)
        text.append("\n")
    text.append(f"{'KV':>{LABEL_COLUMNS - 2}}  ", "dim")
    for stage in stages:
        level = _LEVELS[min(8, int(stage.kv_ratio * 8 + (stage.kv_ratio > 0)))]
        text.append(_bar(level, each), "red" if stage.kv_ratio > 0.95 else DARK_BUSY)
    return text.append("\n").append(f"{'stage':>{LABEL_COLUMNS - 2}}  ", "dim").append(_numbers(stages, each), "dim")


def _cell(text: Text, stage: StageView, parts: Sequence[str], each: int) -> None:
    """One row of a stage: its lower and its upper part."""
    if not stage.healthy:
        text.append(_bar("x", each), "bold red")
        return
    if not parts:
        text.append(_bar("·", each), "dim")
        return
    lower, upper = (_COLOURS[name] for name in parts)
    wide = each if each < 3 else each - 1
    text.append("█" * wide, lower) if lower == upper else text.append("▀" * wide, f"{upper} on {lower}")
    text.append(" " * (each - wide))


def _bar(character: str, each: int) -> str:
    """As wide as a stage, with a gap where there is room for one."""
    return character * each if each < 3 else character * (each - 1) + " "


def _cells(stage: StageView) -> list[str]:
    """What each half of a row shows, from the bottom up: what lies at its middle; empty while nothing is known."""
    if not stage.known:
        return []
    cells = []
    for half in range(2 * BAR_ROWS):
        middle, reached = (half + 0.5) / (2 * BAR_ROWS), 0.0
        name = _ORDER[-1]
        for part in _ORDER:
            reached += stage.shares.get(part, 0.0)
            if reached > middle:
                name = part
                break
        cells.append(name)
    return cells


def _numbers(stages: Sequence[StageView], each: int) -> str:
    """Under every stage where they fit, else under every tenth one."""
    line = [" "] * (len(stages) * each)
    step = 1 if each >= 3 else 10 if each == 1 else 5
    for i in range(0, len(stages), step):
        for k, digit in enumerate(str(stages[i].stage)):
            if i * each + k < len(line):
                line[i * each + k] = digit
    return "".join(line)


def _legend(view: View) -> list[Text]:
    shown = [name for name in _ORDER if any(s.shares.get(name, 0) > 0 for s in view.stages)]
    items = [Text("█ ", _COLOURS[name]).append(name, "default") for name in shown]
    down = [str(s.stage) for s in view.stages if not s.healthy]
    if down:
        items.append(Text(f"down: {', '.join(down[:8])}{' ...' if len(down) > 8 else ''}", "bold red"))
    return items


def _means(view: View) -> list[Text]:
    """Shares over all stages, largest first."""
    known = [s for s in view.stages if s.known]
    if not known:
        return [Text("no stage has served anything since the last frame", "dim")]
    means = {name: sum(s.shares.get(name, 0) for s in known) / len(known) for name in _ORDER}
    largest = sorted(means.items(), key=lambda m: -m[1])
    return [Text(f"{name} {share:.1%}") for name, share in largest if share >= 0.001]


def _flow(items: Sequence[Text], width: int) -> list[Text]:
    """Side by side, on as many lines as they need; at least one."""
    lines = [Text(" " * LABEL_COLUMNS, no_wrap=True)]
    for item in items:
        if len(lines[-1]) > LABEL_COLUMNS and len(lines[-1]) + len(item) > width:
            lines.append(Text(" " * LABEL_COLUMNS, no_wrap=True))
        lines[-1].append_text(item).append("  ")
    for line in lines:
        line.rstrip()
    return lines
