import io

from trainwright.cli.output import Output
from trainwright.planner.counts.parallel.dry_run import CLASSES, DryRank, DryRun, Sent, Share
from trainwright.render.plans.dry_run import show
from trainwright.spec.workload import ParallelPlan


def test_each_number_stands_beside_the_plans() -> None:
    gathered = Sent(kind="all-gather", axis="dp_shard", count=14, size_bytes=4096.0)
    planned = Sent(kind="all-gather", axis="dp_shard", count=7, size_bytes=2048.0)
    other = Sent(kind="send", axis="pp", count=3, size_bytes=512.0)
    rank = DryRank(
        rank=0,
        alike=64,
        shares={f"blocks.{place}.weight": Share(whole=(128, 64), local=(2, 64)) for place in range(8)},
        memory=dict.fromkeys(CLASSES, 3072.0),
        planned_memory=dict.fromkeys(CLASSES, 2048.0),
        sent=(gathered, other),
        planned_sent=(planned,),
    )
    run = DryRun(
        parallel=ParallelPlan(dp_shard=64, ep=8),
        device="h100",
        passes=2,
        micro_batches=8,
        ranks=(rank,),
        notes=("a note",),
    )
    stdout, stderr = io.StringIO(), io.StringIO()
    show(run, Output(command="train", stdout=stdout, stderr=stderr))
    lines = [" ".join(line.split()) for line in stdout.getvalue().splitlines()]
    assert "64 ranks on h100: dp_shard 64, ep 8; nothing was started" in lines
    assert "rank 0, and 63 like it" in lines
    assert "blocks.5.weight 128 x 64 2 x 64" in lines
    assert "and 2 more parameters (--verbose)" in lines
    assert "weights 3 KiB 2 KiB 1.50" in lines
    assert "total 15 KiB 10 KiB 1.50" in lines
    assert "all-gather dp_shard 14 7 4 KiB 2 KiB 2.00" in lines
    assert "send pp 3 0 512 B 0 B" in lines
    assert "of a rank's step 2 of 8 micro batches, each of 1 sequence" in lines
    assert "a note" in stderr.getvalue()


def test_one_micro_batch_says_why_it_has_no_gradients_at_the_peak() -> None:
    memory = dict.fromkeys(CLASSES, 1024.0) | {"gradients": 0.0}
    rank = DryRank(rank=0, alike=1, shares={}, memory=memory, planned_memory=memory, sent=(), planned_sent=())
    parallel = ParallelPlan(dp_shard=2, micro_batch_sequences=4)
    stdout = io.StringIO()
    run = DryRun(parallel=parallel, device="cpu", passes=1, micro_batches=1, ranks=(rank,))
    show(run, Output(command="train", stdout=stdout, stderr=io.StringIO()))
    lines = [" ".join(line.split()) for line in stdout.getvalue().splitlines()]
    assert "a whole step of a rank: one micro batch, of 4 sequences" in lines
    assert "gradients 0 B 0 B" in lines, "nothing beside nothing has no ratio"
    assert "gradients are none at the peak: it comes before the first micro batch has made any" in lines
