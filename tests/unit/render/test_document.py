from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from trainwright.render.document import document


@dataclass(frozen=True)
class Fact:
    path: Path
    seconds: float


class Section(BaseModel):
    lr: float = 0.1


def test_documents_take_what_commands_have():
    payload = {"fact": Fact(Path("a/b"), float("nan")), "set": {2, 1}, "tuple": (1, None), "s": Section(), 3: "é"}
    assert json.loads(document("x", payload, version=1)) == {
        "schema": "trainwright.x/1",
        "fact": {"path": "a/b", "seconds": None},
        "set": [1, 2],
        "tuple": [1, None],
        "s": {"lr": 0.1},
        "3": "é",
    }
