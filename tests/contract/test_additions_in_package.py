"""What CONTRIBUTING.md says of data files and of code inside: one file, or one line, in a copy of the package."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from safetensors.torch import save_file

from fixtures.tiny_models import tokenizer
from trainwright.core.records import from_json
from trainwright.model.build import build_network
from trainwright.spec.model import ModelSpec

DEVICE = """
name = "newcomer-1"
title = "Newcomer 1"
aliases = ["nc1"]
vendor = "Newcomer"
kind = "cuda"
year = 2026
memory_bytes = 64_000_000_000
bytes_per_s = 2000e9
compute_capability = "9.0"
cooling = ["liquid"]
software = ["torch-cuda"]
source = "a test"
recorded = "2026-11-22"

[flops_per_s]
fp32 = 50e12
bf16 = 400e12

[sources]
cooling = "a test"
"""

NODE = """
devices_of = ["newcomer-1"]
devices = 16
scale_out = "ib-ndr"
rails = 4
source = "a test"
recorded = "2026-11-22"
"""

LINK = """
recorded = "2026-11-22"
latency_s = 2e-6
latency_source = "a test"

[newcomer-net]
title = "Newcomer network"
bytes_per_s = 7e9
source = "a test"
"""

CLOUD = """
title = "Newcomer"
aliases = []
source = "a test"
recorded = "2026-11-22"
"""

STACK = """
name = "%(name)s"
title = "a framework with kernels of its own"
aliases = []
states = "fp32"
memory = "pytorch"

[time]
compute = %(compute)g
launch = 1
"""

KIND = """
    "poems": Kind(says="go on with poems", file="poems.yaml", task={"name": "next-token"}, small=DECODER),
"""

MODEL = """
name = "newcomer-tiny"
title = "Newcomer tiny"
aliases = ["newcomer-small"]
parameters = %d
published_parameters = 210_000
source = "a test"
recorded = "2026-11-22"

[config]
model_type = "llama"
hidden_size = 64
intermediate_size = 128
num_hidden_layers = 2
num_attention_heads = 4
vocab_size = 1000
max_position_embeddings = 512
"""

PLAN = ("plan", "--model", "gpt2", "--tokens", "1B")


def test_a_device_is_a_file(copy):
    copy.add("catalog/devices/newcomer-1.toml", DEVICE)
    plan = copy.json(*PLAN, "--on", "8xnc1")["plan"]
    assert plan["cluster"]["node"]["device"]["memory_bytes"] == 64e9
    assert (plan["cluster"]["node"]["name"], plan["cluster"]["node"]["devices"]) == ("default", 8)
    assert plan["estimate"]["tokens_per_s"] > 0
    assert copy.json("hardware", "show", "newcomer-1")["flops_per_s"]["bf16"] == 400e12


def test_a_node_is_a_file(copy):
    copy.add("catalog/devices/newcomer-1.toml", DEVICE)
    copy.add("catalog/nodes/newcomer.toml", NODE)
    cluster = copy.json(*PLAN, "--on", "32xnewcomer-1")["plan"]["cluster"]
    assert (cluster["nodes"], cluster["node"]["name"], cluster["node"]["devices"]) == (2, "newcomer", 16)
    assert cluster["origins"]["rails"] == "catalog"


def test_a_link_is_a_table_in_a_file(copy):
    copy.add("catalog/links/newcomer.toml", LINK)
    cluster = copy.json(*PLAN, "--on", "2x8xh100-sxm", "--scale-out", "newcomer-net", "--rails", "8")["plan"]["cluster"]
    assert cluster["scale_out"]["bytes_per_s"] == 7e9
    assert cluster["scale_out"]["latency_s"] == 2e-6


def test_a_price_is_a_row(copy):
    question = (*PLAN, "--on", "titan-v")
    assert copy.json(*question)["plan"]["estimate"]["usd"] is None
    copy.append("catalog/prices/published.csv", "titan-v,Lambda,one,on_demand,0.5,here,a test,2026-11-22,\n")
    estimate = copy.json(*question)["plan"]["estimate"]
    assert estimate["usd"]["mid"] == pytest.approx(
        0.5 * math.ceil(estimate["seconds"]["mid"] / 60) / 60
    )  # Lambda counts minutes


def test_a_cloud_is_a_file(copy):
    copy.add("catalog/clouds/newcomer.toml", CLOUD)
    copy.append("catalog/prices/published.csv", "titan-v,Newcomer,one,on_demand,0.7,here,a test,2026-11-22,\n")
    estimate = copy.json(*PLAN, "--on", "titan-v", "--cloud", "newcomer")["plan"]["estimate"]
    assert estimate["usd"]["mid"] == pytest.approx(
        0.7 * math.ceil(estimate["seconds"]["mid"] / 60) / 60
    )  # as one of which nothing is known


def test_a_software_stack_is_a_file(copy):
    copy.add("catalog/stacks/newcomer.toml", STACK % {"name": "newcomer", "compute": 1})
    copy.add("catalog/stacks/sluggish.toml", STACK % {"name": "sluggish", "compute": 2})
    fixed = ("--on", "h100-sxm", "--layout", "micro_batch=4,recompute=none")
    plans = [copy.json(*PLAN, *fixed, "--stack", name)["plan"] for name in ("newcomer", "sluggish")]
    fast, slow = (plan["estimate"]["phases"]["forward"] for plan in plans)
    assert slow == pytest.approx(2 * fast, rel=0.02)


def test_a_model_shape_is_a_file(copy):
    block = 4 * 64 * 64 + 3 * 64 * 128 + 2 * 64
    parameters = 2 * 1000 * 64 + 2 * block + 64
    copy.add("catalog/models/newcomer-tiny.toml", MODEL % parameters)
    plan = copy.json("plan", "--model", "newcomer-small", "--on", "t4", "--tokens", "1B")["plan"]
    assert sum(plan["parameters"].values()) == parameters


FAMILY = Path(__file__).parent / "additions" / "families.py"
RECIPE = """
name: newcomer
model: {family: newcomer, layers: 2, width: 32, heads: 2, context_tokens: 64}
data: {sources: [{kind: python-stdlib}], tokenizer: {vocabulary: 320}}
train: {sequence_tokens: 32, batch_tokens: 128, duration: 10 steps}
"""
CONTRACT = """
from trainwright.testing.contract_family import FamilyContract


class TestNewcomer(FamilyContract):
    family = "newcomer"
"""


def test_a_model_family_is_a_file_and_a_line(copy):
    copy.add("model/families/newcomer.py", FAMILY.read_text(encoding="utf-8"))
    copy.insert(
        "spec/model.py", '    "newcomer": "trainwright.model.families.newcomer:FAMILY",\n', after="FAMILIES: Map"
    )
    (copy.root / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    shape = copy.json("plan", "recipe.yaml")["plan"]["model"]
    assert shape["ffn_width"] == 2 * 32
    (copy.root / "bundle").mkdir()
    config = {"model_type": "newcomer", "shape": shape}
    (copy.root / "bundle" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    weights = build_network(from_json(ModelSpec, shape | {"family": "llama"}, where="plan")).named_parameters()
    save_file({f"newcomer.{name}": weight for name, weight in weights}, copy.root / "bundle" / "model.safetensors")
    tokenizer().save(str(copy.root / "bundle" / "tokenizer.json"))
    assert copy.json("config", "validate", "recipe.yaml", "model.init_from=bundle")["valid"]
    (copy.root / "test_newcomer.py").write_text(CONTRACT, encoding="utf-8")
    assert " passed" in copy.module("pytest", "-q", "test_newcomer.py")


SOURCE = Path(__file__).parent / "additions" / "sources.py"
KEYS = """
class IniSection(PathsSection):
    key: str = Field("text", description="key that holds the text")


"""


def test_a_source_is_a_file_and_its_keys(copy):
    reader = SOURCE.read_text(encoding="utf-8")
    start, stop = reader.index("class IniSection"), reader.index("class Ini(")
    reader = (reader[:start] + reader[stop:]).replace("import PathsSection", "import IniSection")
    copy.add("stages/data/sources/ini.py", reader)
    copy.insert("spec/sections/corpus/sources.py", KEYS, after='description="key that holds the worse answer"')
    name = '    "ini": "trainwright.stages.data.sources.ini:Ini",\n'
    copy.insert("spec/sections/corpus/sources.py", name, after="SOURCES: Mapping")
    copy.insert("spec/sections/corpus/sources.py", '    "ini": IniSection,\n', after="SOURCE_KEYS: Mapping")
    (copy.root / "corpus.ini").write_text(
        "".join(f"[{number}]\nbody = row {number}\n" for number in range(9)), encoding="utf-8"
    )
    (copy.root / "recipe.yaml").write_text(RECIPE.replace("family: newcomer, ", ""), encoding="utf-8")
    keys = "data.sources=[{kind: ini, paths: [corpus.ini], key: body}]"
    shares = "data.split={train: 1, validation: 0, test: 0}"
    assert copy.json("data", "recipe.yaml", keys, shares)["total"]["kept"]["documents"] == 9


STAGE = """
from trainwright.artifact.stage import Context, StageResult


def run(context: Context) -> StageResult:
    text = context.input("dataset").file("dataset.json").read_text(encoding="utf-8")
    (context.out / "size.txt").write_text(str(len(text)), encoding="utf-8")
    return StageResult(summary={"characters": len(text)})
"""


def test_a_stage_is_a_folder_and_two_lines(copy):
    copy.add("stages/newcomer/__init__.py", STAGE)
    copy.insert("spec/manifest.py", '    "newcomer": "size",\n', after='"evaluate": "evaluation"')
    line = '        _stage("newcomer", identity=lambda recipe, inputs: {}, needs=[_DATASET]),\n'
    export = '        _stage(\n            "export",'
    copy.replace("pipeline/graph.py", export, f"{line}{export}")
    (copy.root / "corpus.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n', encoding="utf-8")
    (copy.root / "recipe.yaml").write_text(RECIPE.replace("family: newcomer, ", ""), encoding="utf-8")
    corpus = "data.sources=[{kind: jsonl, paths: [corpus.jsonl]}]"
    shares = "data.split={train: 1, validation: 0, test: 0}"
    made = copy.json("run", "recipe.yaml", corpus, shares, "--upto", "newcomer")["artifacts"]
    (dataset,) = copy.root.glob("**/data-*/dataset.json")
    assert made["newcomer"]["summary"] == {"characters": len(dataset.read_text(encoding="utf-8"))}
    named = copy.json("run", "recipe.yaml", corpus, shares, "stages=[{stage: newcomer}]")["artifacts"]
    assert named["newcomer"]["summary"] == made["newcomer"]["summary"]


COMMAND = '''"""Greet, and say how."""

from __future__ import annotations

import argparse
import json

from trainwright.cli.parser import CommandParser


def configure(parser: CommandParser) -> None:
    parser.add_argument("--name", default="you")


def run(args: argparse.Namespace) -> int:
    print(json.dumps({"greets": args.name}))
    return 0
'''


def test_a_command_is_a_file_and_a_row_of_the_table(copy):
    copy.add("cli/shell/greet.py", COMMAND)
    copy.insert(
        "cli/main.py", '    "greet": Command("trainwright.cli.shell.greet", "say hello"),\n', after="COMMANDS = {"
    )
    assert copy.json("greet", "--name", "a newcomer") == {"greets": "a newcomer"}
    assert "say hello" in copy.call("--help")
    assert "greet" in copy.call("completion", "bash")


def test_a_kind_of_recipe_is_an_entry(copy):
    copy.insert("pipeline/recipes/kinds.py", KIND, after="KINDS: Mapping[str, Kind] = {")
    (copy.root / "texts").mkdir()
    (copy.root / "texts" / "one.txt").write_text("a text to go on from\n" * 20)
    assert "go on with poems" in copy.call("init", "--help")
    copy.call("init", "poems", "--model", "small", "--data", "texts", "-o", "poems.yaml")
    assert copy.json("config", "validate", "poems.yaml")["valid"]


def test_a_recipe_key_is_a_field(copy):
    copy.append("spec/sections/plan.py", '    newcomer: int = Field(3, gt=0, description="what is new")\n')
    assert "what is new" in copy.call("config", "explain", "plan.newcomer")
