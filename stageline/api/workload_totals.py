"""What a workload asks for in all: the totals on which bounds of a search rest."""

import msgspec

from stageline.cost.totals import BatchTotals
from stageline.engine.types import Request
from stageline.report.slo import Slo
from stageline.workload import DescribedWorkload


class WorkloadTotals(msgspec.Struct, frozen=True, kw_only=True):
    """The requests of a workload. A closed loop has the same ones whenever they arrive; only their times differ."""

    prompts: tuple[int, ...]
    outputs: tuple[int, ...]
    arrivals_ns: tuple[int, ...]
    reactive: bool  # a closed loop: its arrivals depend on replies, and these times mean nothing
    shares_prompts: bool  # requests name blocks of their prompts, which a prefix cache may hold
    users: int  # requests that a closed loop has in the system at once; 0: an open one

    @property
    def count(self) -> int:
        """How many requests there are."""
        return len(self.prompts)

    def arrivals_within(self, time_ns: int) -> int:
        """How many requests arrive in that time from the first; 0 for a closed loop."""
        if self.reactive or not self.arrivals_ns:
            return 0
        return sum(at - self.arrivals_ns[0] <= time_ns for at in self.arrivals_ns)

    def least(self, count: int, *, prompts: bool) -> BatchTotals:
        """A lower bound on the totals of any `count` of the requests: in each field apart, that of the smallest.

        Prompt tokens P and outputs O of a request make P (P + 1) / 2 pairs of prefill, at least P tokens of KV read by
        it, O - 1 decode tokens, and (O - 1) P + O (O - 1) / 2 pairs and KV tokens of decode: the first token comes from
        the prefill, and the i-th after it reads P + i. Without `prompts`, prefill counts nothing: a cache may hold it.
        """
        new = sorted(self.prompts)[:count] if prompts else []
        steps = sorted(out - 1 for out in self.outputs)[:count]
        kv = sorted((o - 1) * p + o * (o - 1) // 2 for p, o in zip(self.prompts, self.outputs, strict=True))[:count]
        return BatchTotals(
            decode_sequences=min(1, sum(steps)), decode_tokens=sum(steps), decode_kv_tokens=sum(kv),
            decode_pairs=sum(kv), prefill_sequences=min(1, len(new)), prefill_tokens=sum(new),
            prefill_kv_tokens=sum(new), prefill_pairs=sum(p * (p + 1) // 2 for p in new),
        )  # fmt: skip

    def deadline_ns(self, slo: Slo) -> int | None:
        """Time from the first arrival to the latest end that a good request can have; None: the objective has none."""
        if self.reactive or not self.arrivals_ns:
            return None
        ends: list[int] = []
        for at, out in zip(self.arrivals_ns, self.outputs, strict=True):
            if slo.e2e_ns is not None:
                ends.append(at + slo.e2e_ns)
            elif slo.ttft_ns is not None and slo.tpot_ns is not None:
                ends.append(at + slo.ttft_ns + (out - 1) * slo.tpot_ns)
            else:
                return None
        return max(ends) - min(self.arrivals_ns)


def workload_totals(workload: DescribedWorkload) -> WorkloadTotals:
    """Takes all requests of an opened workload. A closed loop gets its replies at once."""
    prompts: list[int] = []
    outputs: list[int] = []
    arrivals: list[int] = []
    waiting: list[int] = []  # requests of a closed loop that have not ended
    users, shares = 0, False
    while True:
        at = workload.next_arrival_ns()
        if at is None:
            users = max(users, len(waiting))
            if not waiting:
                break
            for index in waiting:
                workload.finished(index, arrivals[-1])
            waiting = []
            continue
        request = workload.take()
        if not isinstance(request, Request):
            continue
        prompts.append(request.prompt_tokens)
        outputs.append(request.output_tokens)
        arrivals.append(request.arrival_ns)
        shares = shares or bool(request.hash_ids)
        if workload.reactive:
            waiting.append(request.index)
    return WorkloadTotals(
        prompts=tuple(prompts),
        outputs=tuple(outputs),
        arrivals_ns=tuple(arrivals),
        reactive=workload.reactive,
        shares_prompts=shares,
        users=users,
    )
