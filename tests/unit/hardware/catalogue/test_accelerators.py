"""Records of what torch trains on: what is said to have run has its result, and the rest says that it has not."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from trainwright.core.environment import DEVICE_FILES
from trainwright.hardware.catalogue.accelerators import NEVER_RUN, accelerator, accelerators

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.parametrize("record", accelerators(), ids=lambda record: record.kind)
def test_what_has_run_names_a_dated_result_that_is_there(record) -> None:
    if record.standing == NEVER_RUN:
        return
    assert re.search(r"-\d{4}-\d\d-\d\d\.json$", record.verified)
    assert (ROOT / record.verified).is_file()


def test_a_result_of_a_device_is_named_by_its_record() -> None:
    """The day somebody runs it, the record must stop saying that nobody has."""
    for path in (ROOT / "benchmarks" / "results").glob("train_gpu-*.json"):
        kind = json.loads(path.read_text())["device"]["kind"]
        if kind != "cpu":
            assert accelerator(kind).verified, path.name


def test_a_package_of_its_own_is_an_extra_of_the_same_name() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for record in accelerators():
        if record.package:
            assert any(record.package in requirement.replace("-", "_") for requirement in extras[record.kind])
            assert f"trainwright[train,{record.kind}]" in record.install


def test_the_autoload_looks_for_the_same_files() -> None:
    assert tuple(f"/{pattern}" for pattern in DEVICE_FILES) == accelerator("tpu").device_files


@pytest.mark.parametrize(("language", "never"), [("en", NEVER_RUN), ("zh", "从未在硬件上运行")])
def test_the_documentation_says_of_each_what_its_record_says(language: str, never: str) -> None:
    page = (ROOT / "docs" / language / "accelerators.md").read_text(encoding="utf-8")
    rows = {line.split("`")[1]: line for line in page.splitlines() if line.startswith("| `") and line.count("|") == 8}
    assert rows.keys() == {record.kind for record in accelerators()}
    for record in accelerators():
        cells = [cell.strip() for cell in rows[record.kind].split("|")]
        assert cells[3:6] == [record.package or "torch", record.collectives, record.compiler]
        assert cells[7] == (record.verified or never)


def test_bf16_by_capability() -> None:
    cuda = accelerator("cuda")
    assert [cuda.multiplies_bf16(each) for each in (None, "7.5", "8.0", "10.3")] == [False, False, True, True]
    assert accelerator("xpu").multiplies_bf16(None)
    assert not accelerator("mps").multiplies_bf16(None)
