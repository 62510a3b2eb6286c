"""``seen``: what two ranks of a pipeline saw under each schedule."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch.multiprocessing as mp

from fixtures.pipeline_ranks import main
from trainwright.artifact.store import Artifact


@pytest.fixture(scope="session")
def seen(dataset: Artifact, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Of each rank by schedule; they start once."""
    folder = tmp_path_factory.mktemp("pipeline")
    mp.start_processes(main, args=(str(folder), str(dataset.path)), nprocs=2, start_method="forkserver")
    return [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(2)]
