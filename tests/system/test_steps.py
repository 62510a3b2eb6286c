"""Pretrain, fine-tune on another source, export both: from one recipe, by its list of steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

pytestmark = pytest.mark.slow

STEPS = """
stages:
  - {name: base, stage: train, train: {duration: 30 steps}}
  - name: tuned
    stage: train
    from: base
    data: {sources: [{kind: files, paths: [%s], include: ["*.txt"]}]}
    train: {duration: 10 steps, optimizer: {lr: 1e-3}}
  - {name: measured, stage: evaluate, from: tuned}
  - {name: base-bundle, stage: export, from: base}
  - {name: tuned-bundle, stage: export, from: tuned}
"""


def write_chat(folder: Path) -> None:
    """Documents of other sentences, in letters of which the base's tokens know few."""
    folder.mkdir()
    for number in range(60):
        (folder / f"{number:03d}.txt").write_text(
            f"Q{number}: WHO GOES THERE? A: {'zyx ' * (number % 7 + 8)}{number}\n"
        )


@pytest.fixture(scope="module")
def project(make_project, tmp_path_factory: pytest.TempPathFactory):
    chat = tmp_path_factory.mktemp("steps") / "chat"
    write_chat(chat)
    return make_project(STEPS % chat)


@pytest.fixture(scope="module")
def first(project):
    return project.json("run")["artifacts"]


def weights(artifacts, step: str) -> dict[str, torch.Tensor]:
    return load_file(Path(artifacts[step]["path"]) / "huggingface" / "model.safetensors")


def test_the_exports_of_both_steps_differ_and_the_second_began_with_the_first(project, first) -> None:
    of_base, of_tuned = ["data", "doctor", "plan", "base"], ["tuned.data", "tuned.plan", "tuned"]
    assert list(first) == [*of_base, *of_tuned, "measured", "base-bundle", "tuned-bundle"]
    base, tuned = weights(first, "base-bundle"), weights(first, "tuned-bundle")
    assert base.keys() == tuned.keys()
    assert any(not torch.equal(base[name], tuned[name]) for name in base)
    embedding = "model.embed_tokens.weight"
    moved = (tuned[embedding] - base[embedding]).norm() / base[embedding].norm()
    assert moved < 0.5, "ten steps from the base's weights, not from other random ones"
    assert first["tuned"]["summary"]["steps"] == 10


def test_the_fine_tuning_reads_its_own_source_in_the_tokens_of_the_base(first) -> None:
    paths = {name: Path(first[name]["path"]) for name in ("data", "tuned.data", "base", "tuned")}
    assert first["tuned.data"]["summary"]["documents"] == 60
    tokenizers = {(path / "tokenizer.json").read_bytes() for path in paths.values()}
    assert len(tokenizers) == 1


def test_the_fine_tuning_is_planned_as_it_is_trained(project) -> None:
    # The corpus gives fewer tokens than 2000: only the tokenizer of the base knows the vocabulary.
    keys = ("data.tokenizer.vocabulary=2000", "stages.1.train.duration=2 epochs")
    made = project.json("run", "--upto", "tuned", *keys)["artifacts"]
    planned, trained = made["tuned.plan"]["summary"], made["tuned"]["summary"]
    assert (planned["parameters"], planned["steps"]) == (trained["parameters"], trained["steps"])


def test_again_is_all_cached(project, first) -> None:
    done = project.call("run")
    assert done.returncode == 0, done.stderr
    assert "started" not in done.stderr
    assert all(f"{name}: cached" in done.stderr for name in first)


def test_another_rate_of_the_second_step_makes_only_what_follows_from_it(project, first) -> None:
    done = project.call("run", "stages.1.train.optimizer.lr=5e-4")
    assert done.returncode == 0, done.stderr
    started = [line.split(":")[0] for line in done.stderr.splitlines() if line.endswith(": started")]
    assert started == ["tuned.plan", "tuned", "measured", "tuned-bundle"]


def test_commands_are_about_a_step_by_its_name(project, first) -> None:
    done = project.call("run", "--upto", "base")
    assert done.returncode == 0 and "tuned" not in done.stderr
    named = project.json("export", "--step", "base-bundle")["artifacts"]
    assert named["base-bundle"]["path"] == first["base-bundle"]["path"]
    assert "tuned" not in named
    vague = project.call("train")
    assert vague.returncode == 2
    assert "several steps of the stage train (seen base, tuned); say which, for example --step tuned" in vague.stderr
    wrong = project.call("run", "--upto", "tunde")
    assert wrong.returncode == 2 and "did you mean 'tuned'" in wrong.stderr


def test_a_wrong_list_is_one_line_with_its_place(project, tmp_path) -> None:
    recipe = tmp_path / "wrong.yaml"
    recipe.write_text(project.recipe.read_text().replace("from: tuned", "from: tunde"))
    done = replace(project, recipe=recipe, workspace=tmp_path / "runs").call("run")
    assert done.returncode == 2
    lines = [line for line in done.stderr.splitlines() if "wrong.yaml" in line]
    assert len(lines) == 2 and all("no such step (seen tunde" in line for line in lines)
    assert not (tmp_path / "runs").exists()
