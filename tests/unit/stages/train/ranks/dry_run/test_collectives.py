"""A dry run beside real ranks: four processes over gloo send and keep what was counted without them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fixtures.dry_run_ranks import main
from fixtures.started import start
from trainwright.stages.train.ranks.dry_run.run import dry_run
from unit.stages.train.ranks.dry_run.test_run import OF_THIS_TRACKER, planned

RANKS = 4
LAYOUTS: dict[str, dict[str, Any]] = {
    "stages of shards": {"pp": 2, "dp_shard": 2},
    "stages of parts of matrices": {"pp": 2, "tp": 2},
    "four stages": {"pp": 4},
}
"""Of pipelines, which keep what they gathered: what counts live tensors here does not see storages that shrink."""
SHAPE = {"layers": 4, "width": 128, "heads": 4, "ffn_width": 448, "context_tokens": 128}
pytestmark = [OF_THIS_TRACKER, pytest.mark.timeout(900)]


def case(layout: dict[str, Any]) -> tuple[Any, Any]:
    """As many micro batches as a dry run counts."""
    sequences = (layout["pp"] + 1) * layout.get("dp_shard", 1)
    numbers = {"sequence_tokens": 128, "batch_tokens": 128 * sequences}
    return planned(layout, shape=SHAPE, vocabulary=1024, **numbers)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each rank kept and sent in its second step, by the layout's name; they start once for all."""
    folder = tmp_path_factory.mktemp("ranks")
    cases = [(name, *case(layout)) for name, layout in LAYOUTS.items()]
    start(main, RANKS, folder, RANKS, str(folder), cases)
    return [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(RANKS)]


@pytest.mark.parametrize("name", LAYOUTS)
def test_real_ranks_keep_and_send_what_was_counted(name: str, real: list[dict[str, Any]]) -> None:
    run = dry_run(*case(LAYOUTS[name]))
    assert run.passes == run.micro_batches
    for rank in run.ranks:
        there = real[rank.rank][name]
        assert [[each.kind, each.axis, each.count, each.size_bytes] for each in rank.sent] == there["sent"]
        assert sum(rank.memory.values()) == pytest.approx(there["peak_bytes"], rel=0.03), rank.rank
