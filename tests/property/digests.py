"""Five hundred random scenarios with their digests, kept as data: a change of code may not change one of them.

`python -m tests.property.digests` compares all of them. They are kept whole (plan, settings, requests), so that neither
new defaults nor a change of `strategies` reaches them. A changed rule needs `... update`, which keeps the scenarios and
replaces the digests that changed; `... write` draws the scenarios anew.
"""

import gzip
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from stageline.engine import inprocess
from stageline.engine.settings import Scheduling
from stageline.engine.types import Request
from stageline.plan.schema import Plan
from stageline.testing import DigestObserver
from tests.reference.strategies import Scenario, build, build_sharing, build_speculating, build_windows

FILE = Path(__file__).parent.parent / "data" / "digests.jsonl.gz"
KINDS = (build, build, build_sharing, build_windows, build_speculating)
COUNT = 500


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """One scenario, everything said, and what came of it."""

    number: int
    plan: Plan
    scheduling: Scheduling
    users: tuple[tuple[Request, ...], ...]
    starts_ns: tuple[int, ...]
    think_ns: int
    seed: int
    digest: str

    def scenario(self) -> Scenario:
        """As the strategies build it."""
        return Scenario(self.plan, self.scheduling, self.users, self.starts_ns, self.think_ns, self.seed)


def digest_of(scenario: Scenario) -> str:
    """One run in this process."""
    seen = DigestObserver()
    totals = inprocess.run(scenario.plan, scenario.scheduling, scenario.workload(), seed=scenario.seed, observer=seen)
    return seen.finish(totals.stages)


def kept() -> Iterator[Kept]:
    """All of them, in their order."""
    decoder = msgspec.json.Decoder(Kept)
    with gzip.open(FILE) as file:
        yield from (decoder.decode(line) for line in file)


def write() -> None:
    """Draw and run them anew."""
    with gzip.GzipFile(FILE, "wb", mtime=0) as file:
        for number in range(COUNT):
            s = KINDS[number % len(KINDS)](random.Random(number))
            plan = s.plan
            scheduling = msgspec.structs.replace(
                s.scheduling,
                microbatch=s.scheduling.microbatch or plan.defaults.microbatch,
                credits=s.scheduling.credits or plan.defaults.credits,
                batched_tokens=s.scheduling.batched_tokens or plan.defaults.batched_tokens,
            )
            entry = Kept(
                number=number, plan=plan, scheduling=scheduling, users=s.users, starts_ns=s.starts_ns,
                think_ns=s.think_ns, seed=s.seed, digest=digest_of(s),
            )  # fmt: skip
            if digest_of(entry.scenario()) != entry.digest:
                raise ValueError(f"scenario {number}: its defaults are not what they seem")
            file.write(msgspec.json.encode(entry) + b"\n")


def update() -> None:
    """Keep the scenarios, replace the digests that a changed rule changed, and say which."""
    changed = []
    entries = list(kept())
    with gzip.GzipFile(FILE, "wb", mtime=0) as file:
        for old in entries:
            entry = msgspec.structs.replace(old, digest=digest_of(old.scenario()))
            if entry.digest != old.digest:
                changed.append(entry.number)
            file.write(msgspec.json.encode(entry) + b"\n")
    print(f"{len(changed)} of {COUNT} digests replaced: {changed}")


def main(arguments: list[str]) -> int:
    """The command."""
    if arguments in (["write"], ["update"]):
        write() if arguments == ["write"] else update()
        return 0
    wrong = [k.number for k in kept() if digest_of(k.scenario()) != k.digest]
    print(f"{COUNT - len(wrong)} of {COUNT} digests as kept" + (f"; changed: {wrong}" if wrong else ""))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
