from __future__ import annotations

import pytest

from trainwright.render.progress import Progress, TaskState
from trainwright.spec.event import Event


def event(t_s, kind, name, value=0.0, **more):
    return Event(run="r", t_s=t_s, kind=kind, name=name, value=value, **more)


def steps(t_s, done, total=100.0):
    return event(t_s, "progress", "train", done, total=total, unit="steps")


def lines(output_to, events, **options):
    output = output_to(**options)
    with Progress(output) as progress:
        for each in events:
            progress(each)
    assert not output.stdout.getvalue()
    return output.stderr.getvalue().splitlines()


def test_the_rate_is_taken_from_the_last_half_minute():
    task = TaskState(name="train")
    for second in range(101):
        task.update(steps(1000.0 + second, second if second <= 50 else 50 + (second - 50) * 4, total=500.0))
    assert task.per_s == pytest.approx(4.0)
    assert task.remaining_s == pytest.approx((500 - 250) / 4)
    assert task.elapsed_s == 100


def test_nothing_is_guessed_from_one_event():
    task = TaskState(name="train")
    task.update(steps(5.0, 3))
    assert task.per_s is None
    assert task.remaining_s is None
    assert task.text() == "3/100 steps (3%)"


def test_a_task_that_begins_again_forgets_its_past():
    task = TaskState(name="train")
    for t_s, done in ((0, 0), (10, 90), (20, 10), (30, 20)):
        task.update(steps(float(t_s), float(done)))
    assert task.per_s == pytest.approx(1.0)
    assert task.elapsed_s == 10


def test_a_line_tells_what_is_known():
    task = TaskState(name="train", metrics={"loss": 2.3124, "tokens_per_s": 41_234.0, "mfu": 0.4201})
    task.update(steps(0.0, 0, 2000.0))
    task.update(steps(10.0, 31, 2000.0))
    assert task.text() == ("31/2,000 steps (2%), 3.1 steps/s, 10 min 35 s left, loss 2.312, 41,200 tokens/s, MFU 42.0%")


def test_images_are_not_called_tokens():
    task = TaskState(name="train", metrics={"images_per_s": 410.0})
    task.update(steps(0.0, 0, 2000.0))
    assert task.text() == "0/2,000 steps (0%), 410 images/s"


def test_rates_of_a_task_and_the_time_left_agree():
    task = TaskState(name="train", metrics={"steps_per_s": 20.0, "tokens_per_s": 2000.0})
    task.update(steps(0.0, 0, 2000.0))
    task.update(steps(10.0, 800, 2000.0))  # faster of late than the task has said since
    assert task.text() == "800/2,000 steps (40%), 20 steps/s, 1 min 00 s left, 2,000 tokens/s"
    assert task.remaining_s == pytest.approx((2000 - 800) * 100 / task.metrics["tokens_per_s"])


def test_without_a_total_there_is_no_share():
    task = TaskState(name="read", unit="documents")
    for t_s, done in ((0.0, 0.0), (2.0, 3_000_000.0)):
        task.update(event(t_s, "progress", "read", done, unit="documents"))
    assert task.text() == "3M documents, 1.5M documents/s"


def test_plain_lines_come_every_ten_seconds_and_at_the_end(output_to):
    events = [steps(float(second), second) for second in range(26)] + [steps(26.0, 100), steps(27.0, 100)]
    shown = lines(output_to, events)
    assert [line.split(",")[0] for line in shown] == [
        "train: 10/100 steps (10%)",
        "train: 20/100 steps (20%)",
        "train: 100/100 steps (100%)",
    ]
    assert "took 26 s" in shown[-1]


def test_stages_and_messages_are_lines(output_to):
    assert lines(
        output_to,
        [
            event(0.0, "stage", "data", 0.0),
            event(12.3, "stage", "data", 1.0, text="done in 12.3 s"),
            event(13.0, "stage", "plan", 0.0),
            event(13.002, "stage", "plan", 1.0, text="cache hit"),
            event(14.0, "message", "", text="[bold]compiling"),
            event(14.0, "phase", "forward", 1.0),
        ],
    ) == ["data: started", "data: done in 12.3 s", "plan: started", "plan: cache hit", "[bold]compiling"]


def test_verbose_prints_each_metric(output_to):
    metric = event(1.0, "metric", "validation/loss", 2.31, unit="nats/token", step=120)
    assert lines(output_to, [metric], verbose=True) == ["step 120: validation/loss 2.31 nats/token"]
    assert lines(output_to, [metric]) == []


def test_other_ranks_and_quiet_are_silent(output_to):
    assert lines(output_to, [event(0.0, "message", "", text="x", rank=1)]) == []
    assert lines(output_to, [event(0.0, "message", "", text="x")], quiet=True) == []


def test_a_terminal_gets_a_bar(output_to, terminal):
    output = output_to(stderr=terminal)
    with Progress(output) as progress:
        progress(event(0.0, "stage", "train", 0.0))
        progress(steps(0.0, 0))
        progress(steps(10.0, 40))
        progress(event(10.0, "metric", "train/loss", 1.5))
        progress(event(11.0, "stage", "train", 1.0, text="done in 11 s"))
        progress(steps(20.0, 100))
    shown = terminal.getvalue()  # what is left on the screen, and what was drawn over
    assert "train: 100/100 steps (100%), 5 steps/s, took 20 s, loss 1.5" in shown
    assert "train: done in 11 s" in shown
    assert "started" not in shown
