"""No change of code changes a digest: only a changed rule of emulated time may, in a commit that names it."""

from tests.property.digests import COUNT, digest_of, kept


def test_kept_scenarios_give_the_kept_digests() -> None:
    """`scripts/digests` lists the numbers of those that differ; `next(islice(kept(), N, None))` is scenario N."""
    found = {k.number: digest_of(k.scenario()) == k.digest for k in kept()}
    assert len(found) == COUNT
    assert [number for number, same in found.items() if not same] == []
