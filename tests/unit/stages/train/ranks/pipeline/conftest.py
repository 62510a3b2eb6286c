"""``seen``: what two ranks of a pipeline saw under each schedule."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fixtures.pipeline_ranks import main
from fixtures.started import start
from trainwright.artifact.store import Artifact


@pytest.fixture(scope="session")
def seen(dataset: Artifact, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Of each rank by schedule; they start once."""
    folder = tmp_path_factory.mktemp("pipeline")
    start(main, 2, folder, str(folder), str(dataset.path))
    return [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(2)]
