from __future__ import annotations

from dataclasses import replace

import pytest

from fixtures.page import WrittenPage
from trainwright.hardware.catalogue.models import model
from trainwright.hardware.catalogue.nodes import cluster
from trainwright.planner.cost.serving import estimate_inference
from trainwright.planner.cost.serving_memory import Serving
from trainwright.render.plans.serving import show, verdict

SERVING = Serving(prompt_tokens=1024, new_tokens=1024, batch=4, tp=1, weights="bf16")


@pytest.fixture(scope="module")
def estimate():
    return estimate_inference(model("llama3-8b").deployed(), SERVING, cluster("h100-sxm"))


def test_the_parts_of_the_memory_sum_to_the_total(estimate):
    page = WrittenPage()
    show("llama3-8b", estimate, SERVING, page)
    assert page.headings[0].startswith("fits: ") and page.headings[0].endswith("price unknown")
    assert [name for name, _ in page.tables["memory of a device"]][-1] == "total"
    assert page.lines[0] == (
        "llama3-8b in bf16; a replica on one device; on each a batch of 4: 1,024 tokens of prompt, 1,024 new ones"
    )


def test_what_does_not_fit_names_the_batch_that_would_else_the_first_way(estimate):
    too_large = replace(estimate, fits=False, largest_batch=2)
    assert verdict(too_large).endswith("; a batch of 2 would")
    assert verdict(replace(too_large, largest_batch=0), ["--precision int8"]).endswith(
        "; smallest change: --precision int8"
    )
