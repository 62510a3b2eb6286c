from __future__ import annotations

import json
from dataclasses import replace

from trainwright.spec.recipe import Recipe
from trainwright.stages.report.blocks import Code, Facts, Figure, Table
from trainwright.stages.report.origins import data, machine, provenance


def test_the_funnel_names_every_reason(record):
    chart = next(block for block in data(record).blocks if isinstance(block, Figure)).views[0][1]
    labels = [label for label, _ in chart.groups]
    assert labels == ["read", "broken: not UTF-8", "dropped: too short", "duplicates", "kept"]
    counts = [bars[0].total for _, bars in chart.groups]
    assert counts[0] == sum(counts[1:])


def test_machine_shows_facts_and_probes_but_no_path(record):
    facts, probes = (dict(block.facts) for block in machine(record).blocks if isinstance(block, Facts))
    assert facts["memory"] == "16 GiB"
    assert facts["GPUs"] == "none"
    assert "disk path" not in facts
    assert probes["matmul bf16"] == "432 GFLOP/s"


def test_what_is_known_to_be_absent_is_not_unknown(record):
    bare = replace(record.machine, facts=replace(record.machine.facts, torch=None, compiler=None), probes=None)
    record.__dict__["machine"] = bare
    (facts,) = (dict(block.facts) for block in machine(record).blocks if isinstance(block, Facts))
    assert (facts["torch"], facts["compiler"], facts["GPUs"]) == ("not installed", "none on the path", "none")
    assert facts["clock"] == "unknown", "what nobody could read stays unknown"


def test_the_model_is_told_without_rows_that_have_no_meaning(record):
    model = next(block for block in provenance(record).blocks if isinstance(block, Facts) and block.title == "Model")
    facts = dict(model.facts)
    assert facts["parameters"] == "4,722,944"
    assert facts["normalisation"].startswith("RMSNorm") and "bias" not in facts["normalisation"]
    assert not {"patch size", "image size", "norm bias"} & facts.keys()
    assert "unknown" not in facts.values()


def test_findings_come_with_what_mends_them(record):
    table = next(block for block in machine(record).blocks if isinstance(block, Table))
    assert table.rows[0][1] == "close it before measuring"


def test_every_artefact_has_its_fingerprint_time_and_command(record):
    blocks = provenance(record).blocks
    table = next(block for block in blocks if isinstance(block, Table))
    by_stage = {row[0]: row for row in table.rows}
    assert by_stage["plan"][1].text == record.artifacts["plan"].manifest.fingerprint[:12]
    assert by_stage["export"][1].text == "missing"
    timing = next(block for block in blocks if isinstance(block, Figure)).views[0][1]
    assert [bars[0].total for _, bars in timing.groups] == [
        artifact.manifest.execution["seconds"] for artifact in record.artifacts.values()
    ]


def test_the_recipe_on_the_page_is_the_recipe(record):
    code = next(block for block in provenance(record).blocks if isinstance(block, Code))
    assert Recipe.model_validate(json.loads(code.text)) == record.recipe
