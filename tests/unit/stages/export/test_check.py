"""What cannot be exported is refused without torch, before anything is trained."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.planned_recipe import planned_recipe
from trainwright.stages.export.check import problems

FORMLESS = "model.family=fixtures.plugged_family:FAMILY"
PAIR = "contract.additions.exporters:Pair"


@pytest.mark.parametrize("override", ["model.family=llama", "model.family=gpt2", "model.kv_heads=1"])
def test_what_can_be_exported(tmp_path, override) -> None:
    assert list(problems(planned_recipe(tmp_path, override), None)) == []


def test_a_family_without_a_form_is_refused_under_the_format(tmp_path) -> None:
    (problem,) = problems(planned_recipe(tmp_path, FORMLESS, f"export.formats=['{PAIR}', huggingface]"), None)
    assert (problem.what, problem.where) == ("this family has no Hugging Face form", "export.formats.1")
    assert problem.fix is not None and "another exporter" in problem.fix
    assert list(problems(planned_recipe(tmp_path, FORMLESS, f"export.formats=['{PAIR}']"), None)) == []


def test_a_shape_without_a_form_is_refused(tmp_path) -> None:
    (problem,) = problems(planned_recipe(tmp_path, "model.family=gpt2", "model.kv_heads=1"), None)
    assert (problem.what, problem.where) == ("this shape cannot be exported", "model")
    assert problem.seen is not None and "kv_heads = heads" in problem.seen


def test_no_torch_is_needed_to_know_it(tmp_path) -> None:
    planned_recipe(tmp_path)
    program = (
        "import sys; from pathlib import Path; from fixtures.planned_recipe import planned_recipe\n"
        "from trainwright.stages.export.check import problems\n"
        "for family in ('llama', 'gpt2'):\n"
        f"    assert not list(problems(planned_recipe(Path({str(tmp_path)!r}), f'model.family={{family}}'), None))\n"
        "sys.exit('torch' in sys.modules)"
    )
    tests = Path(__file__).parents[3]
    subprocess.run([sys.executable, "-c", program], cwd=tests, check=True)
