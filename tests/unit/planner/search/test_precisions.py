"""In what a recommendation computes: what a device has, a precision asked for, and what the software has."""

from dataclasses import replace

from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.hardware.catalogue.nodes import cluster
from trainwright.hardware.catalogue.stacks import read_stack
from trainwright.hardware.prices.price_list import checked
from trainwright.planner.search.recommend import recommend
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import Workload

WORK = Workload(
    sequence_tokens=8192, batch_tokens=256 * 8192, steps=10_000, precision="bf16", optimizer="adamw", states="mixed"
)
RUN = RunSpec(model=catalogue_model("llama3-8b"), workload=WORK, cluster=cluster("8xt4"), stack=read_stack("default"))
PRICES = checked([])


def recommended(**options):
    return recommend(RUN, **{"prices": PRICES, "most_devices": 512, **options})


def test_a_device_computes_in_what_it_has_unless_a_precision_is_asked_for():
    names = ("h100-sxm", "v100-sxm-32gb", "gtx-1080-ti")
    free = recommended(devices=names)
    assert {each.device: each.precision for each in free.options} == {
        "h100-sxm": "bf16",
        "v100-sxm-32gb": "fp16",
        "gtx-1080-ti": "fp32",
    }
    asked = recommended(devices=names, precision="fp8")
    assert {(each.device, each.precision) for each in asked.options} == {("h100-sxm", "fp8")}
    refused = {each.name: each.reason for each in asked.refused if each.kind == "precision"}
    assert refused == dict.fromkeys(names[1:], "no fp8 rate is known")


def test_a_search_takes_the_precisions_of_the_software():
    ours = replace(RUN, stack=read_stack("trainwright"))
    for run, dtype in ((RUN, "fp16"), (ours, "fp32")):
        ways = recommend(run, devices=["t4"], prices=PRICES).options
        assert {option.precision for option in ways} == {dtype}
