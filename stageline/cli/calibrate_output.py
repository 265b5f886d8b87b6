"""What `stageline calibrate` prints: residuals, constants, and where times come from."""

from collections.abc import Sequence

from stageline.api.lookup import AnyProfile
from stageline.cli import output
from stageline.cost.efficiencies import Efficiencies
from stageline.cost.kernel_profile import KernelProfile
from stageline.cost.profile import Residual


def show_profile(profile: AnyProfile, *, as_json: bool) -> None:
    if isinstance(profile, KernelProfile):
        _show_tables(profile, as_json=as_json)
        return
    if as_json:
        if isinstance(profile, Efficiencies):
            output.print_json({"fitted": profile.residuals, "backtest": profile.backtest})
        else:
            output.print_json(profile.residuals)
        return
    name = f"{profile.name}: {profile.model} on {profile.device}"
    fitted = isinstance(profile, Efficiencies)
    _table(name, "the half that was fitted" if fitted else "residuals", profile.residuals)
    if isinstance(profile, Efficiencies):
        _table("", "backtest: the half that was not", profile.backtest)
        _constants(profile)
    else:
        output.print_lines([f"attention x {profile.attention_scale:g}"])


def _table(title: str, what: str, found: Sequence[Residual]) -> None:
    rows = [
        [r.of, f"{r.points:,}", "" if r.mean is None else f"{r.mean:+.2%}", f"{r.median:+.2%}", f"{r.p90_absolute:.2%}"]
        for r in found
    ]
    columns = [(f"{what}, profile / measured - 1", False), ("points", True), ("of the mean", True)]
    columns += [("median", True), ("90 % within", True)]
    output.print_table(title, columns, rows)


def _show_tables(profile: KernelProfile, *, as_json: bool) -> None:
    """Where the times come from, and what no table has."""
    low, high = profile.tokens()
    if as_json:
        covers = {"tokens": [low, high], "notes": profile.notes, "source": profile.source}
        output.print_json({"name": profile.name, "residuals": profile.residuals} | covers)
        return
    group = f"TP{profile.tensor_parallel}" + f" EP{profile.expert_parallel}" * (profile.expert_parallel > 1)
    output.print_lines(
        [
            f"{profile.name}: {profile.model} on {profile.device}, {group}, {', '.join(profile.weights)} weights, "
            f"{profile.kv_type} KV",
            "tables:",
            *(f"  {table}" for table in profile.source.split("; ")),
            f"steps of {low:,} to {high:,} tokens; what lies beyond is extrapolated, and plan says so",
            *(f"note: {note}" for note in profile.notes),
        ]
    )


def _constants(fit: Efficiencies) -> None:
    """The constants, and between which bounds they fit almost as well."""
    rows = [
        [what, text.format(getattr(fit, name) * factor), _bounds(fit, name, text, factor)]
        for what, name, text, factor in (
            ("share of peak FLOP/s", "flops_share", "{:.1%}", 1),
            ("share of bandwidth", "bandwidth_share", "{:.1%}", 1),
            ("host per step", "step_ns", "{:,.0f} us", 1e-3),
            ("host per step and sequence", "sequence_ns", "{:,.1f} us", 1e-3),
            ("front end per request", "front_end_ns", "{:,.0f} us", 1e-3),
        )
    ]
    output.print_table("", [("constant", False), ("fitted", True), ("almost as good", False)], rows)


def _bounds(fit: Efficiencies, name: str, text: str, factor: float) -> str:
    if fit.least is None or fit.most is None or not hasattr(fit.least, name):
        return ""
    low, high = (text.format(getattr(end, name) * factor) for end in (fit.least, fit.most))
    return low if low == high else f"{low} to {high}"
