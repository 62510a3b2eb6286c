"""``adapters.json``: what is written is read back, and so is what was written before bases were kept in nf4."""

from __future__ import annotations

from trainwright.core.records import from_json, to_json
from trainwright.spec.parts.adaptation import Adaptation, BaseModel, LowRank

BASE = BaseModel(path="/models/base", digest="0" * 64)
BESIDE = Adaptation(modules={"blocks.0.ffn.up": LowRank(rank=4, scale=0.5)}, base=BASE, frozen="nf4")


def test_a_record_comes_back() -> None:
    assert from_json(Adaptation, to_json(BESIDE), where="adapters.json") == BESIDE


def test_an_older_record_is_of_a_base_as_products_take_it() -> None:
    record = to_json(BESIDE)
    del record["frozen"]
    assert from_json(Adaptation, record, where="adapters.json").frozen == "auto"
