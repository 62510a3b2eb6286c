import pytest

from fixtures.planned_models import LLAMA
from trainwright.planner.estimate import Surroundings, bottleneck, estimate, step_parts
from trainwright.planner.flops import training_flops_per_token
from trainwright.planner.layout import evaluate
from trainwright.planner.memory import optimizer_bytes
from trainwright.planner.parameters import total_parameters


@pytest.fixture
def made(workload, device):
    around = Surroundings(checkpoint_bytes_per_s=1e8, checkpoint_every_s=5.0, compile_s=3.0, spread=(0.9, 1.2))
    layout = evaluate(LLAMA, workload, device, sequences=4)
    found, counted = estimate(LLAMA, workload, layout, device, around, peak_flops_per_s=4e11, assumptions=())
    return found, counted, layout


def test_phases_of_the_run_sum_to_its_time(made, workload):
    found, _, layout = made
    assert found.run_phases.total_s == pytest.approx(found.seconds.mid)
    assert found.run_phases.forward == pytest.approx(workload.steps * layout.phases.forward)
    assert found.seconds.low == pytest.approx(0.9 * found.seconds.mid)
    assert found.run_phases.other > 3.0


def test_checkpoints_follow_the_clock(made, workload):
    found, counted, layout = made
    steps_s = workload.steps * layout.phases.total_s + found.run_phases.evaluate
    assert counted.checkpoints == 1 + int(steps_s / 5)
    size = 4 * total_parameters(LLAMA) + optimizer_bytes(LLAMA, workload)
    assert found.run_phases.checkpoint == pytest.approx(counted.checkpoints * size / 1e8)


def test_mfu_is_model_flops_over_the_peak(made, workload):
    found, _, layout = made
    flops = training_flops_per_token(LLAMA, sequence_tokens=512) * workload.batch_tokens
    assert found.mfu == pytest.approx(flops / layout.phases.total_s / 4e11)
    assert found.tokens_per_s == pytest.approx(workload.batch_tokens / layout.phases.total_s)


def test_the_bottleneck_is_the_largest_part_and_parts_sum_to_the_step(made, workload, device):
    _, _, layout = made
    parts = step_parts(LLAMA, workload, layout, device)
    assert sum(parts.values()) == pytest.approx(layout.phases.total_s, rel=0.02)
    assert bottleneck(LLAMA, workload, layout, device).startswith(max(parts, key=parts.get))
