"""Checkpoints are listed, checked, converted and compared from the command line, without torch."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file

from fixtures.checkpoints import write_checkpoint
from trainwright.cli.main import main


@pytest.fixture
def folder(tmp_path):
    whole = np.arange(12, dtype=np.float32).reshape(6, 2)
    halves = [((0, 0), (3, 2)), ((3, 0), (3, 2))]
    root = tmp_path / "runs" / "train-1.partial" / "checkpoints"
    write_checkpoint(root / "step-00000007", {"weight": whole}, {"weight": halves}, layout={"dp_shard": 2})
    write_checkpoint(root / "step-00000009", {"weight": whole + np.float32(0.5)}, step=9, metrics={"loss": 2.25})
    return root


def answer(capsys, *words: object, code: int = 0) -> dict:
    assert main(["checkpoint", *map(str, words), "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_ls_says_what_there_is(folder, capsys) -> None:
    found = answer(capsys, "ls", folder.parents[1])
    assert found["schema"] == "trainwright.checkpoint.ls/1"
    assert [(each["step"], each["layout"], each["loss"], each["damage"]) for each in found["checkpoints"]] == [
        (7, {"dp_shard": 2}, 1.5, None),
        (9, {}, 1.5, None),
    ]
    assert main(["checkpoint", "ls", str(folder)]) == 0
    text = capsys.readouterr().out
    assert "dp_shard=2" in text and "one process" in text and "2.2500" in text and "whole by size" in text


def test_verify_names_the_tensor_and_the_file(folder, capsys) -> None:
    path = folder / "step-00000007"
    assert [each["damages"] for each in answer(capsys, "verify", path)["checkpoints"]] == [[]]
    file = path / "model-1.safetensors"
    data = file.read_bytes()
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    ((damage,),) = [each["damages"] for each in answer(capsys, "verify", path, code=4)["checkpoints"]]
    assert "damaged tensor weight" in damage and str(file) in damage
    assert main(["checkpoint", "verify", str(path)]) == 4
    assert "1 problem" in capsys.readouterr().out


def test_convert_makes_a_bundle(folder, capsys, tmp_path) -> None:
    told = answer(capsys, "convert", folder / "step-00000007", tmp_path / "bundle")
    assert told["size_bytes"] > 0
    found = load_file(tmp_path / "bundle" / "model.safetensors")
    assert np.array_equal(found["weight"], np.arange(12, dtype=np.float32).reshape(6, 2))


def test_diff_says_how_far_they_are(folder, capsys) -> None:
    first, second = folder / "step-00000007", folder / "step-00000009"
    assert answer(capsys, "diff", first, first)["differences"] == []
    (found,) = answer(capsys, "diff", first, second, code=1)["differences"]
    assert (found["name"], found["elements"], found["max_abs"]) == ("weight", 12, 0.5)
    assert main(["checkpoint", "diff", str(first), str(second)]) == 1
    share = "0.0722 of its norm"  # 0.5 √12 over √575
    assert capsys.readouterr().out.startswith(f"1 tensor differs: 1 in values; the most in weight, by {share}.")


def test_what_is_no_checkpoint_is_one_line(tmp_path, capsys) -> None:
    assert main(["checkpoint", "verify", str(tmp_path)]) == 4
    assert "no complete checkpoint here" in capsys.readouterr().err
    assert main(["checkpoint", "ls", str(tmp_path)]) == 4


def test_ls_of_one_checkpoint_is_that_one(folder, capsys) -> None:
    (found,) = answer(capsys, "ls", folder / "step-00000009")["checkpoints"]
    assert (found["step"], found["damage"]) == (9, None)


def said(capsys, *words: object) -> str:
    """The line in which a command refuses."""
    assert main(["checkpoint", *map(str, words)]) == 4
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_what_may_have_been_meant_is_named(folder, tmp_path, capsys) -> None:
    newest = f"; name one, such as the newest: {folder / 'step-00000009'}"
    for place in (folder.parent, folder):
        line = said(capsys, "verify", place)
        assert "no complete checkpoint here" in line and line.endswith(newest)
    workspace = folder.parents[1]
    assert said(capsys, "verify", workspace).endswith(f"; list what there is: trainwright checkpoint ls {workspace}")
    (folder / "step-00000011").mkdir()
    other = f"; go on from another step: {folder / 'step-00000009'}"
    assert said(capsys, "verify", folder / "step-00000011").endswith(other)
    (tmp_path / "t.yaml").write_text("")
    line = said(capsys, "verify", tmp_path / "t.yaml")
    assert (
        line.startswith(f"error: {tmp_path}/t.yaml: not a folder (expected a folder step-...") and "Errno" not in line
    )


@pytest.mark.parametrize(("data", "seen"), [(b"", "an empty file"), (b"\xff{", "2 bytes that are no JSON")])
def test_an_index_that_is_none_says_what_it_is(folder, capsys, data, seen) -> None:
    (folder / "step-00000009" / "checkpoint.json").write_bytes(data)
    line = said(capsys, "verify", folder / "step-00000009")
    assert f"cannot be read (seen {seen})" in line
    assert line.endswith(f"; go on from another step: {folder / 'step-00000007'}")


def test_damage_names_another_step_to_go_on_from(folder, tmp_path, capsys) -> None:
    path = folder / "step-00000007"
    (path / "model-1.safetensors").unlink()
    other = f"; go on from another step: {folder / 'step-00000009'}"
    ((damage,),) = [each["damages"] for each in answer(capsys, "verify", path, code=4)["checkpoints"]]
    listed = {each["step"]: each["damage"] for each in answer(capsys, "ls", folder)["checkpoints"]}
    for text in (damage, listed[7], said(capsys, "convert", path, tmp_path / "bundle")):
        assert "missing" in text and text.endswith(other)
    assert listed[9] is None


def test_torch_is_not_needed(folder) -> None:
    script = (
        "import sys; from trainwright.cli.main import main; "
        f"codes = [main(['checkpoint', word, {str(folder / 'step-00000007')!r}]) for word in ('verify', 'ls')]; "
        "sys.exit(codes != [0, 0] or 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_average_writes_the_mean_of_a_trainings_last_ones(folder, tmp_path, capsys) -> None:
    made = answer(capsys, "average", folder.parent, "--last", 2, "--into", tmp_path / "mean")
    assert [each.rpartition("/")[2] for each in made["checkpoints"]] == ["step-00000007", "step-00000009"]
    expected = np.arange(12, dtype=np.float32).reshape(6, 2) + np.float32(0.25)
    assert np.array_equal(load_file(tmp_path / "mean" / "model.safetensors")["weight"], expected)
    assert main(["checkpoint", "average", str(folder.parent), "--into", str(tmp_path / "other")]) == 4
    said = capsys.readouterr().err
    assert "too few checkpoints in this training (seen step-00000007, step-00000009, expected 5)" in said
    ones = [str(path) for path in sorted(folder.iterdir())]
    assert main(["checkpoint", "average", *ones, "--last", "2", "--into", str(tmp_path / "other")]) == 2
    assert "--last is of one training" in capsys.readouterr().err


def test_a_damaged_neighbour_is_none_to_go_on_from(folder, tmp_path, capsys) -> None:
    write_checkpoint(folder / "step-00000011", {"weight": np.ones((2, 2), np.float32)}, step=11)
    (folder / "step-00000011" / "checkpoint.json").write_text("{")
    (folder / "step-00000009" / "model-0.safetensors").unlink()
    whole = f"; go on from another step: {folder / 'step-00000007'}"
    for name in ("step-00000009", "step-00000011"):
        assert main(["checkpoint", "convert", str(folder / name), str(tmp_path / "bundle")]) == 4
        assert capsys.readouterr().err.strip().endswith(whole)
    file = folder / "step-00000007" / "model-0.safetensors"
    file.write_bytes(file.read_bytes() + b"1")
    assert "go on from" not in said(capsys, "convert", folder / "step-00000009", tmp_path / "bundle")


def test_several_are_verified_one_after_the_other(folder, capsys) -> None:
    first, second, none = folder / "step-00000007", folder / "step-00000009", folder / "step-00000010"
    found = answer(capsys, "verify", first, second)["checkpoints"]
    assert [(each["checkpoint"], each["damages"]) for each in found] == [(str(first), []), (str(second), [])]
    found = answer(capsys, "verify", none, second, code=4)["checkpoints"]
    assert "no complete checkpoint here" in found[0]["damages"][0] and found[1]["damages"] == []
    assert main(["checkpoint", "verify", str(none), str(second)]) == 4
    text = capsys.readouterr().out
    assert "no complete checkpoint here" in text and f"{second}: step 9, " in text and "every digest is right" in text


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
@pytest.mark.parametrize("place", ["/proc/x/y", "/proc/x/y/z", "/proc/z"])
def test_a_bundle_that_cannot_be_made_there_is_one_line(folder, capsys, place) -> None:
    assert main(["checkpoint", "convert", str(folder / "step-00000007"), place]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert "cannot write" in line and "defect" not in line
