import json

import pytest

from fixtures.planned_recipe import TEXT
from trainwright.cli import main as cli


def planned(capsys, *arguments):
    assert cli.main(["plan", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["plan"]


@pytest.mark.parametrize("how", [["r.yaml"], ["--model", "r.yaml"]])
def test_a_recipe_on_a_cluster_keeps_its_model_and_workload(how, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.yaml").write_text(TEXT)
    plan = planned(capsys, *how, "--on", "4xa100-80gb", "--batch", "4096")
    assert plan["model"]["vocabulary"] == 1024
    assert plan["workload"]["batch_tokens"] == 4096
    assert plan["cluster"]["node"]["devices"] == 4


def test_a_configuration_or_numbers_are_a_model(tmp_path, capsys):
    config = {
        "model_type": "llama",
        "hidden_size": 256,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 512,
        "vocab_size": 1000,
        "max_position_embeddings": 128,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    by_file = planned(capsys, "--model", str(tmp_path / "config.json"), "--on", "t4")
    assert by_file["model"]["layers"] == 3
    assert by_file["workload"]["sequence_tokens"] == 128
    assert planned(capsys, "--model", "layers=2,width=64,heads=2,vocabulary=99", "--on", "t4")["model"]["width"] == 64


def test_links_prices_and_layouts_are_taken(capsys):
    links = ["--scale-out", "100Gb/s", "--scale-up", "pcie4", "--rails", "2"]
    rest = ["--price", "1.5", "--price-kind", "on-demand", "--layout", "dp_shard=16,micro_batch=2"]
    plan = planned(capsys, "--model", "gpt2", "--on", "2x8xa100-80gb", *links, *rest, "--stack", "torchtitan")
    assert plan["cluster"]["node"]["scale_up"]["name"] == "pcie4"
    assert plan["cluster"]["scale_out"]["bytes_per_s"] == pytest.approx(2 * 12.5e9 / 8)
    assert plan["parallel"]["dp_shard"] == 16
    hours = plan["estimate"]["needs"]["device_hours"]
    assert plan["estimate"]["usd"]["mid"] == pytest.approx(1.5 * hours)


def test_the_optimizers_state_and_the_loss_can_be_made_smaller(capsys):
    asked = ["--model", "llama3-8b", "--on", "8xh100-sxm", "--layout", "dp_shard=8,micro_batch=1,recompute=full"]
    plain = planned(capsys, *asked)["estimate"]["memory"]
    small = planned(capsys, *asked, "--moments", "int8", "--fused-loss")["estimate"]["memory"]
    assert small["optimizer"] == pytest.approx(plain["optimizer"] / 4, rel=0.02)
    assert small["logits"] < plain["logits"]


def test_experts_may_be_more_even_and_fewer_tokens_predicted(capsys):
    asked = [
        "--model",
        "deepseek-v3",
        "--on",
        "256x8xh800-sxm",
        "--precision",
        "fp8",
        "--stack",
        "hai-llm",
        "--layout",
        "pp=16,tp=4,ep=64",
        "--sequence",
        "4096",
        "--batch",
        "62914560",
    ]
    plain = planned(capsys, *asked)
    document = planned(capsys, *asked, "--expert-imbalance", "1.0", "--mtp", "0")
    assert plain["model"]["further_layers"] == 1 and document["model"]["further_layers"] == 0
    assert document["workload"]["expert_imbalance"] == 1.0
    assert sum(plain["parameters"].values()) - sum(document["parameters"].values()) == pytest.approx(11.5e9, rel=0.01)
    assert document["estimate"]["phases"]["backward"] < plain["estimate"]["phases"]["backward"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "llama3-8b", "--on", "h100-sxm", "--mtp", "-1"], "--mtp: cannot read a quantity"),
        (["--model", "mixtral-8x7b", "--on", "8xh100-sxm", "--expert-imbalance", "0.5"], "at least 1, seen 0.5"),
        (["--model", "llama3-8b", "--on", "h100-sxm", "--inference", "--mtp", "0"], "--mtp: this is about training"),
        (["--model", "gpt2"], "on which machines?"),
        (["--model", "gtp2"], "did you mean gpt2"),
        (["--model", "gtp2", "--inference"], "did you mean gpt2"),
        (["--on", "t4"], "which model?"),
        (["--model", "gtp2", "--on", "t4"], "did you mean gpt2"),
        (["--model", "gpt2", "--on", "t5"], "did you mean"),
        (["--model", "gpt2", "--on", "t4", "--tokens", "-5"], "--tokens: cannot read"),
        (["--model", "gpt2", "--on", "t4", "--tokens", "0"], "--tokens: must be at least 1"),
        (["--model", "gpt2", "--on", "t4", "--precision", "bf61"], "did you mean 'bf16'"),
        (["--model", "gpt2", "--on", "a100-80gb", "--precision", "fp8"], "no fp8 rate is known (seen a100-sxm-80gb"),
        (["--model", "gpt2", "--on", "t4", "--method", "dora"], "--method: unknown value"),
        (["--model", "resnet-50", "--on", "8xa100-80gb", "--layout", "tp=2"], "this layout is for transformers"),
        (
            ["--model", "resnet-50", "--on", "8xa100-80gb", "--method", "lora"],
            "--method: this is for transformers, not for convolutional networks",
        ),
        (["--model", "nothing.json", "--on", "t4"], "no such file"),
        (["--tokens", "5B"], "this is about a cluster"),
        (["r.yaml", "--model", "gpt2", "--on", "t4"], "a recipe has its model"),
    ],
)
def test_bad_questions_end_in_one_line(arguments, message, capsys):
    assert cli.main(["plan", *arguments]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert len(printed.err.strip().splitlines()) == 1
    assert not printed.out


def test_two_kinds_of_devices_are_sent_to_recommend(capsys):
    assert cli.main(["plan", "--model", "llama3-8b", "--on", "8xh100 + 8xa100-80gb"]) == 2
    assert "trainwright recommend --have 8xh100+8xa100-80gb" in capsys.readouterr().err


def test_the_software_of_a_measured_run_is_the_default(tmp_path, capsys):
    run = {
        "framework": "torchtitan",
        "model": "llama3-8b",
        "seq_len": 8192,
        "gpu": "h100",
        "n_gpus": 8,
        "tokens_per_s_per_gpu": 6000,
    }
    path = tmp_path / "run.json"
    path.write_text(json.dumps(run))
    asked = ["--model", "llama3-8b", "--on", "8xh100", "--tokens", "1B", "--calibrate", str(path)]

    def said(*more):
        assumptions = {each["name"]: each for each in planned(capsys, *asked, *more)["estimate"]["assumptions"]}
        return assumptions["software"]["value"], assumptions["measured runs"]["value"]

    assert said()[0] == "torchtitan" and said()[1].startswith("speed x")
    assert said("--stack", "megatron-core") == ("megatron-core", "nothing learnt")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ["--on", "h100", "--rate", "28", "TFLOP/s"],
            "no rate of a device (seen '28', expected a rate such as 28TFLOP/s)",
        ),
        (["--on", "h100", "--tokens", "15T", "TFLOP/s"], "no such recipe (seen 'TFLOP/s'); a value with a space in it"),
        (["--on", "h100", "r.yaml"], "a recipe has its model"),
        (["--on", "2xh100 + 8480+"], "recommend --have 2xh100+8480+ --model"),
    ],
)
def test_a_refusal_says_what_is_wrong_with_the_words(words, line, capsys):
    assert cli.main(["plan", "--model", "llama3-8b", *words]) == 2
    assert line in capsys.readouterr().err


def test_a_name_that_ends_with_a_plus_is_one_device(capsys):
    plan = planned(capsys, "--model", "llama3-8b", "--tokens", "1B", "--on", "Intel Xeon Platinum 8480+")
    assert plan["cluster"]["node"]["device"]["name"] == "xeon-8480plus"
