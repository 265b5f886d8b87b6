"""The flags of `stageline search` that say what is asked."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from stageline.api.fleet_file import parse_transfer
from stageline.api.placement_limits import PlacementLimits
from stageline.api.question import DEFAULT_REQUESTS, DISAGGREGATE, MAX_DEVICES, Question
from stageline.api.scheduling import check_drafts
from stageline.cli.groups import DEVICES, QUESTION
from stageline.cli.measure_flags import WindowFlags
from stageline.cli.numbers import DECIMAL, WHOLE
from stageline.cli.plan_flags import FixedFlags
from stageline.cli.speculation_flags import SpeculationFlags
from stageline.cli.varied_flags import VariedFlags
from stageline.engine.settings import Scheduling
from stageline.errors import BadInput, UsageError


@Parameter(name="*", group=DEVICES)
@dataclass(frozen=True, slots=True, kw_only=True)
class LimitFlags:
    """Where devices stand, and what they cost."""

    max_context_parallel: Annotated[
        int,
        WHOLE,
        Parameter(
            name=("--max-context-parallel", "--most-context-parallel"), help="Maximum context-parallel size to try."
        ),
    ] = 1
    tensor_in_node: Annotated[
        bool, Parameter(negative="", help="Leave out stages whose ranks do not share a node.")
    ] = False
    whole_nodes: Annotated[bool, Parameter(negative="", help="Leave out divisions that do not fill their nodes.")] = (
        False
    )
    stock: Annotated[str | None, Parameter(help="How many devices there are, like h100-sxm=16,a100-80g=8.")] = None
    price: Annotated[
        str | None, Parameter(help="Price of one device per hour, like 2.5, or of each: h100-sxm=2.5,a100-80g=1.6.")
    ] = None
    budget: Annotated[float | None, DECIMAL, Parameter(help="Most money per hour; needs --price.")] = None

    def limits(self) -> PlacementLimits:
        """As the API takes them. Raises BadInput."""
        stock = _by_device("--stock", self.stock, "h100-sxm=16")
        if "" in stock:
            raise BadInput("--stock", self.stock, "names no device", "write it like h100-sxm=16")
        uneven = [f"{name}={count:g}" for name, count in stock.items() if count != int(count)]
        if uneven:
            raise BadInput("--stock", uneven[0], "not a whole number", "write it like h100-sxm=16")
        return PlacementLimits(
            tensor_in_node=self.tensor_in_node,
            whole_nodes=self.whole_nodes,
            stock={name: int(count) for name, count in stock.items()},
            prices=_by_device("--price", self.price, "2.5 or h100-sxm=2.5"),
            budget=self.budget,
        )


@Parameter(name="*", group=QUESTION)
@dataclass(frozen=True, slots=True, kw_only=True)
class SearchFlags:
    """The workload, the objective, and how devices may be divided."""

    workload: Annotated[
        str, Parameter(help="Trace file, or a synthetic workload like poisson:rate=4,input=1024,output=128.")
    ]
    devices: Annotated[str, Parameter(help="Total number of devices, like 8, or a range like 4..16.")]
    slo: Annotated[str | None, Parameter(help="Objective, like ttft=2s,tpot=50ms,attainment=0.99.")] = None
    requests: Annotated[int, WHOLE, Parameter(help="Maximum number of requests.")] = DEFAULT_REQUESTS
    rate_scale: Annotated[str, Parameter(help="Factor on the arrival rate, like 2, 0.5 or 3/2.")] = "1"
    seed: Annotated[int, WHOLE, Parameter(help="Seed of every random draw, 0 or more.")] = 0
    every_count: Annotated[
        bool, Parameter(negative="", help="Go on to more devices when fewer meet the objective.")
    ] = False
    exhaustive: Annotated[
        bool, Parameter(negative="", help="Run every combination on the whole workload, however many there are.")
    ] = False
    headroom: Annotated[
        bool, Parameter(help="Find the largest load that the answer serves, also with one replica lost.")
    ] = True

    survive_loss: Annotated[
        bool, Parameter(negative="", help="Demand that the objective is also met with one replica lost.")
    ] = False

    disaggregate: Annotated[
        str | None,
        Parameter(
            help="Also try prefill and decode in two pools. How KV moves: keys of a fleet file's [kv-transfer], like "
            "network=ndr-infiniband or bandwidth=50GB/s,order=destination-first."
        ),
    ] = None

    def question(
        self,
        names: tuple[str, str],
        varied: VariedFlags,
        limits: LimitFlags,
        fixed: FixedFlags,
        speculation: SpeculationFlags,
        measure: WindowFlags,
    ) -> Question:
        """As the API takes it; `names` are models and devices, separated by commas. Raises UsageError or BadInput."""
        models, devices = (tuple(text.split(",")) for text in names)
        drafts = speculation.given()
        check_drafts(Scheduling(), drafts)
        return Question(
            models=models,
            device_names=devices,
            keywords=fixed.keywords(),
            catalog_dirs=fixed.catalog_dirs,
            workload=self.workload,
            devices=_counts(self.devices),
            slo=self.slo,
            vary=varied.vary(),
            max_context_parallel=limits.max_context_parallel,
            requests=self.requests,
            rate_scale=self.rate_scale,
            seed=self.seed,
            given=drafts,
            window=measure.window(),
            limits=limits.limits(),
            every_count=self.every_count,
            exhaustive=self.exhaustive,
            headroom=self.headroom,
            survive_loss=self.survive_loss,
            disaggregate=None if self.disaggregate is None else parse_transfer(self.disaggregate, DISAGGREGATE),
        )


def _counts(text: str) -> tuple[int, ...]:
    """ "8" -> (8,); "4..6" -> (4, 5, 6). Raises UsageError for anything else."""
    first, dots, last = text.partition("..")
    try:
        low, high = int(first), int(last if dots else first)
    except ValueError:
        reason = "give a number such as 8, or a range such as 46..118"
        raise UsageError(f"--devices {text!r}: {reason}") from None
    if not 1 <= low <= high <= MAX_DEVICES:
        raise UsageError(f"--devices {text}: must lie between 1 and {MAX_DEVICES}, the smaller number first")
    return tuple(range(low, high + 1))


def _by_device(flag: str, text: str | None, example: str) -> dict[str, float]:
    """ "2.5" -> {"": 2.5}; "a=1,b=2" -> {"a": 1.0, "b": 2.0}. Raises BadInput."""
    found: dict[str, float] = {}
    for part in text.split(",") if text is not None else []:
        name, equals, number = part.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            raise BadInput(flag, part, "not a number", f"write it like {example}") from None
        if name in found or bool(equals) != bool(name):
            raise BadInput(flag, part, "given twice" if name in found else "no device", f"write it like {example}")
        found[name.strip()] = value
    return found
