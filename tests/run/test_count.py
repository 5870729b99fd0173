"""What a count says before it begins."""

from dist_bpe.run.count import LARGE_MERGE, partitions_advice


def test_workers_that_the_merge_will_not_need() -> None:
    assert partitions_advice(16, 16, 10 * LARGE_MERGE) is None
    assert partitions_advice(400, 16, LARGE_MERGE - 1) is None
    assert partitions_advice(17, 16, LARGE_MERGE) == (
        "the merge will make 16 parts, so that 1 worker of 17 will have none to make: partitions (--partitions) 17 "
        "gives each one, if the run is begun anew (--restart)."
    )
