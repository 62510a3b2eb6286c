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
    assert "dp_shard=2" in text and "one process" in text and "2.2500" in text and "complete" in text


def test_verify_names_the_tensor_and_the_file(folder, capsys) -> None:
    path = folder / "step-00000007"
    assert answer(capsys, "verify", path)["damages"] == []
    file = path / "model-1.safetensors"
    data = file.read_bytes()
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    (damage,) = answer(capsys, "verify", path, code=1)["damages"]
    assert "damaged tensor weight" in damage and str(file) in damage
    assert main(["checkpoint", "verify", str(path)]) == 1
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
    assert capsys.readouterr().out.startswith("1 tensor differs: 1 in values; the most in weight, by 0.5.")


def test_what_is_no_checkpoint_is_one_line(tmp_path, capsys) -> None:
    assert main(["checkpoint", "verify", str(tmp_path)]) == 4
    assert "no complete checkpoint here" in capsys.readouterr().err
    assert main(["checkpoint", "ls", str(tmp_path)]) == 4


def test_torch_is_not_needed(folder) -> None:
    script = (
        "import sys; from trainwright.cli.main import main; "
        f"codes = [main(['checkpoint', word, {str(folder / 'step-00000007')!r}]) for word in ('verify', 'ls')]; "
        "sys.exit(codes != [0, 4] or 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
