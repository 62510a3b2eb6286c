"""What CONTRIBUTING.md says of code inside: a file and a line of a registry, and a run knows the name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.conftest import Copy, document
from trainwright.hardware.machine.shared import HOME, shared_probes
from trainwright.testing.machine import fake_probes

ADDITIONS = Path(__file__).parent / "additions"
ENGINE = Path(__file__).parents[1] / "fixtures" / "parrot_engine.py"
FILTERS = "stages.data.cleaning.filters"
DOCUMENTS, UNFINISHED, SHORT = 120, 7, 3
RECIPE = """
name: newcomers
task: {name: informed}
model: {layers: 2, width: 32, heads: 2, context_tokens: 64}
data:
  sources: [{kind: jsonl, paths: [corpus.jsonl]}]
  clean: {filters: [unfinished, {name: short, words: 5}]}
  tokenizer: {vocabulary: 320}
train:
  sequence_tokens: 32
  batch_tokens: 128
  duration: 3 steps
  precision: fp32
  optimizer: {name: momentum, lr: 1e-2}
  schedule: {name: square_root, warmup: 1 steps}
  exec: {compile: false, threads: 1, micro_batch: 2, log_every_steps: 1}
evaluate: {splits: [test]}
export: {formats: [huggingface, pair]}
serve: {engine: parrot, demo: {prompt: "once", max_tokens: 1}}
"""
KEYS = """
class Short(FilterSection):
    words: int = Field(2, gt=0, description="documents with fewer words are dropped")


"""
FUNCTION = """

def short(text: str, section: Short) -> str | None:
    return f"under {section.words} words" if len(text.split()) < section.words else None
"""
SHOW = """
import json
from trainwright.launch.launchers import launcher

print(json.dumps(type(launcher("named", root=".")).__name__))
"""


def body(path: Path) -> str:
    """A module's text without the line that puts off its annotations, which stands first."""
    return path.read_text(encoding="utf-8").replace("from __future__ import annotations\n", "")


def add_all(copy: Copy) -> None:
    """Adds one of each kind, where the table says."""
    inside = "stages/data/cleaning/filters.py", "stages/train/optimizer.py", "stages/train/schedule.py"
    for file, name in zip(inside, ("filters", "optimizers", "schedules"), strict=True):
        copy.append(file, body(ADDITIONS / f"{name}.py"))
    copy.append("stages/data/cleaning/filters.py", FUNCTION)
    copy.insert("spec/sections/data.py", KEYS, after="max_ratio: float = Field(0.3")
    copy.replace("spec/sections/data.py", '{"long-lines": LongLines', '{"short": Short, "long-lines": LongLines')
    for file, path in (
        ("model/tasks/informed.py", ADDITIONS / "tasks.py"),
        ("stages/export/pair.py", ADDITIONS / "exporters.py"),
        ("launch/named.py", ADDITIONS / "launchers.py"),
        ("model/generation/parrot.py", ENGINE),
    ):
        copy.add(file, path.read_text(encoding="utf-8"))
    for file, start, name, reference in (
        ("spec/sections/data.py", "FILTERS: Mapping[str, str] = {", "unfinished", f"{FILTERS}:unfinished"),
        ("spec/sections/data.py", "FILTERS: Mapping[str, str] = {", "short", f"{FILTERS}:short"),
        ("spec/sections/export.py", "EXPORTERS: Mapping[str, str] = {", "pair", "stages.export.pair:Pair"),
        ("spec/sections/serve.py", "ENGINES: Mapping[str, str] = {", "parrot", "model.generation.parrot:open_engine"),
        ("launch/launchers.py", "LAUNCHERS = {", "named", "launch.named:Named"),
    ):
        copy.replace(file, start, f'{start}"{name}": "trainwright.{reference}", ')
    copy.replace("spec/sections/updates/optimizer.py", '("adamw", ', '("adamw", "momentum", ')
    copy.replace("spec/sections/updates/schedule.py", '"wsd", ', '"wsd", "square_root", ')
    task = '    "informed": TaskKind(make="trainwright.model.tasks.informed:informed"),\n'
    copy.insert("spec/sections/task.py", task, after="TASKS: Mapping")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copy]:
    """A copy with one more of each kind, after a run of the recipe above."""
    copy = Copy(tmp_path_factory.mktemp("inside") / "copy")
    add_all(copy)
    (copy.root / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    ends = ["TODO"] * UNFINISHED + ["the end"] * (DOCUMENTS - UNFINISHED)
    texts = [f"once there were {number} {'and more ' * (number % 9)}things\n{end}" for number, end in enumerate(ends)]
    texts += [f"{number} words of four" for number in range(SHORT)]
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (copy.root / "corpus.jsonl").write_text(lines, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(HOME, str(copy.root / "home"))
        probes = shared_probes()
        assert probes is not None
        probes.write(fake_probes())  # an invented machine's, so that nothing is measured
    copy.call("run", "recipe.yaml", "--workspace", "runs")
    yield copy
    copy.remove()


@pytest.mark.slow
def test_a_filter_is_a_function_and_a_line(copy):
    (source,) = document(copy.root / "runs", "data-*/report.json")["sources"]
    dropped = {reason: count["documents"] for reason, count in source["dropped"].items()}
    assert dropped == {"unfinished": UNFINISHED, "under 5 words": SHORT}


@pytest.mark.slow
def test_a_task_is_a_file_and_a_line(copy):
    measured = document(copy.root / "runs", "evaluate-*/evaluation.json")["splits"]["test"]
    assert measured["metrics"]["bits_per_token"]["unit"] == "bits/token"


@pytest.mark.slow
def test_an_optimizer_is_a_function_and_a_line(copy):
    plan = document(copy.root / "runs", "plan-*/plan.json")
    notes = {each["key"]: (each["value"], each["source"]) for each in plan["estimate"]["assumptions"]}
    assert plan["workload"]["optimizer"] == "adamw"
    assert notes["optimizer_unknown"] == ("as adamw", "nobody has measured momentum")
    (line,) = (copy.root / "runs/ledger.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["unmeasured"] == {"optimizer": "momentum", "task": "informed"}
    (path,) = (copy.root / "runs").glob("train-*/checkpoints/*/optimizer.safetensors")
    assert b"momentum_buffer" in path.read_bytes()[:10_000]


@pytest.mark.slow
def test_a_schedule_is_a_function_and_a_line(copy):
    (log,) = (copy.root / "runs").glob("train-*/events.jsonl")
    events = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    rates = [event["value"] for event in events if event.get("name") == "train/lr"]
    assert rates == pytest.approx([0.01, 0.01, 0.01 * (1 - 0.5**0.5)])


@pytest.mark.slow
def test_an_exporter_is_a_file_and_a_line(copy):
    assert document(copy.root / "runs", "export-*/pair/shape.json")["width"] == 32


@pytest.mark.slow
def test_a_serving_engine_is_a_module_and_a_line(copy):
    (choice,) = document(copy.root / "runs", "serve-*/answer.json")["response"]["choices"]
    assert choice["text"] and "once".startswith(choice["text"]), "a parrot repeats the prompt"


def test_a_launcher_is_a_file_and_a_line(copy):
    (copy.root / "show.py").write_text(SHOW, encoding="utf-8")
    assert json.loads(copy.module("show")) == "Named"
