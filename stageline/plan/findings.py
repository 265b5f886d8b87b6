"""What stands out in a plan or in a run of it, in the words and by the thresholds that both share.

`advice` judges a plan by its nominal microbatch, `stageline/report/plan_advice.py` a run by what its stages did. Each
function returns "" where nothing stands out.
"""

from collections.abc import Sequence

HOPS_SHARE = 0.5  # of a token's time: from here on network latency dominates
IMBALANCE = 1.1  # busiest stage / mean stage
NOMINAL_ERROR = 0.05  # of a layer's bytes
FEW_REQUESTS = 8  # per stage: with fewer, decode is bound by reading weights, far from compute


def split(device: str, held: str, devices: int) -> str:
    """One device would do for what is held."""
    return f"One {device} holds {held}, but the plan splits it over {devices}"


def group_across_nodes(ranks: int, inside: int, device: str) -> str:
    """A group of ranks that is larger than the domain of `inside` devices."""
    return f"A group of {ranks} devices leaves the scale-up domain of {inside} {device}"


def hops_dominate(network_ns: float, token_ns: float, token: str) -> str:
    """`token` says what takes `token_ns`."""
    share = network_ns / token_ns
    if share < HOPS_SHARE:
        return ""
    return (
        f"{share:.0%} of {token} is network latency ({network_ns:,.0f} of {token_ns:,.0f} ns), which no faster device "
        "reduces"
    )


def busiest(times: Sequence[int], names: Sequence[str]) -> tuple[int, str]:
    """The busiest of several stages, and how far it is above the mean; "" if it hardly is."""
    worst, mean = max(range(len(times)), key=lambda i: times[i]), sum(times) / len(times)
    if len(times) == 1 or times[worst] <= IMBALANCE * mean:
        return worst, ""
    return worst, f"{names[worst]} is busy {times[worst] / mean:.2f} x the mean stage"


def nominal_layers(nominal: int, real: Sequence[int]) -> str:
    """A plan that counts one size for layers which differ."""
    worst = max(range(len(real)), key=lambda i: abs(real[i] - nominal))
    error = real[worst] / nominal - 1 if nominal else 0.0
    if abs(error) < NOMINAL_ERROR:
        return ""
    return (
        f"The plan counts {nominal:,} bytes for every layer, but layer {worst} has {real[worst]:,} ({error:+.0%}), and "
        "embedding and head are not placed"
    )


def smaller_weights(name: str, beside: str, need: int, devices: int) -> str:
    """A format of weights with which fewer devices hold everything."""
    return f"Weights in {name}{beside} fit {need} of the {devices} devices, by bytes"
