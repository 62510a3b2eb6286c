from trainwright.hardware.models import model
from trainwright.hardware.nodes import cluster
from trainwright.hardware.stacks import stack
from trainwright.planner.predict.request import Request
from trainwright.spec.workload import ParallelPlan, Workload


def test_a_request_is_one_layout_with_the_workloads_recomputation():
    work = Workload(
        sequence_tokens=2048, batch_tokens=2048 * 32, steps=1, precision="bf16", optimizer="adamw", recompute="full"
    )
    found = Request(
        model=model("llama3-8b"), workload=work, parallel=ParallelPlan(dp_shard=4, tp=2, micro_batch_sequences=2),
        cluster=cluster("8xh100-sxm"), stack=stack("torchtitan"),
    ).layouts()  # fmt: skip
    assert len(found) == 1
    assert found.has("recompute", "full").all()
    assert (found.devices[0], found.micro_batches[0]) == (8, 4)
