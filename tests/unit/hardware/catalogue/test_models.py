"""Models by name, file and numbers; the catalogue against its own numbers and against transformers' networks."""

from __future__ import annotations

import json
import re
import tomllib
from importlib.resources import files

import pytest

from fixtures.reference_models import published
from trainwright.core.errors import DataError, RecipeError
from trainwright.hardware.catalogue.models import (
    find_model,
    model,
    model_names,
    normalised,
    published_model,
    read_model,
)
from trainwright.planner.counts.parameters import active_parameters, parameter_counts, total_parameters
from trainwright.spec.convnet import ConvNetSpec
from trainwright.spec.model import ModelSpec

NAMES = model_names()


def config_of(name):
    return tomllib.loads((files("trainwright") / "catalog" / "models" / f"{name}.toml").read_text())["config"]


@pytest.mark.parametrize("name", NAMES)
def test_each_file_holds_the_count_of_its_configuration_near_the_published_one(name):
    entry = published_model(name)
    assert entry.name == name
    assert entry.source and entry.title and entry.recorded
    spec = entry.spec.deployed() if isinstance(entry.spec, ModelSpec) else entry.spec
    assert entry.parameters == total_parameters(spec)
    # Papers print two or three digits: 1.65 billion is "1.7B".
    assert entry.parameters == pytest.approx(entry.published_parameters, rel=0.03)
    if entry.published_active_parameters is not None:
        active, counts = active_parameters(spec), parameter_counts(spec)
        if "without" in entry.note:
            active -= counts["embedding"] + (counts["head"] if "and head" in entry.note else 0)
        assert active == pytest.approx(entry.published_active_parameters, rel=0.03)


def reference_count(name):
    module, _ = published(name)
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name",
    [
        "gpt2",
        "llama3.2-1b",
        "qwen3-30b-a3b",
        "deepseek-v2-lite",
        "gpt-oss-20b",
        "falcon-40b",
        "pythia-160m",
        "bert-large",
        "vit-h-14",
        "resnet-50",
    ],
)
def test_counts_are_those_of_transformers_at_full_size(name):
    assert reference_count(name) == published_model(name).parameters


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_every_count_is_that_of_transformers_at_full_size(name):
    assert reference_count(name) == published_model(name).parameters


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("gpt2", 124_439_808),
        ("llama3-70b", 70_553_706_496),
        ("llama3.1-405b", 405_853_388_800),
        ("mistral-7b", 7_241_732_096),
        ("mixtral-8x7b", 46_702_792_704),
        ("qwen3-235b-a22b", 235_093_634_560),
        ("gpt-oss-120b", 116_829_156_672),
        ("bloom-176b", 176_247_271_424),
        ("resnet-50", 25_557_032),
        ("vit-b-16", 86_567_656),
    ],
)
def test_counts_that_their_authors_print_in_full(name, parameters):
    assert total_parameters(model(name)) == parameters


def test_no_name_stands_for_two_models():
    names = [name for entry in map(published_model, NAMES) for name in (entry.name, *entry.aliases)]
    assert len(names) == len(set(names))
    assert all(name == normalised(name) for name in names)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("llama3-70b", "llama3-70b"),
        ("Llama 3 70B", "llama3-70b"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama3.1-8b"),
        ("meta-llama/Llama-2-7b-chat-hf", "llama2-7b"),
        ("mistralai/Mistral-7B-v0.1", "mistral-7b"),
        ("google/gemma-2-9b-it", "gemma2-9b"),
        ("bert-base-uncased", "bert-base"),
        ("answerdotai/ModernBERT-base", "modernbert-base"),
        ("gpt3", "gpt3-175b"),
    ],
)
def test_spelling_and_repositories_are_understood(written, name):
    assert find_model(written).name == name
    assert read_model(written) == model(name)


def test_an_unknown_model_names_its_neighbours():
    with pytest.raises(RecipeError, match=r"^--model: unknown model \(seen 'lama3-70b', .*did you mean llama3-70b or"):
        read_model("lama3-70b", where="--model")
    assert find_model("---") is None


def test_a_configuration_is_read_from_its_file_and_from_its_folder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(config_of("qwen3-8b")))
    for place in (tmp_path, tmp_path / "config.json"):
        assert read_model(str(place)) == model("qwen3-8b")


@pytest.mark.parametrize(
    ("text", "error", "message"), [("{", DataError, "cannot read JSON"), (None, RecipeError, "no such file")]
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, text, error, message):
    path = tmp_path / "my.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(error, match=rf"my\.json: {message}"):
        read_model(str(path))


def test_numbers_make_a_decoder():
    written = (
        "layers=32,width=4096,heads=32,kv_heads=8,ffn_width=14336,vocabulary=128256,context_tokens=8192, tied=false"
    )
    spec = read_model(written)
    assert isinstance(spec, ModelSpec)
    assert spec.family == "transformer"
    assert total_parameters(spec) == total_parameters(model("llama3-8b"))


def test_numbers_make_a_decoder_of_the_older_kind():
    spec = read_model("layers=12,width=768,heads=12,vocabulary=50257,context_tokens=1024,gated=false")
    assert total_parameters(spec) == total_parameters(model("gpt2"))


def test_numbers_make_a_mixture():
    written = "layers=32,width=4096,heads=32,kv_heads=8,ffn_width=14336,vocabulary=32k,experts=8,active_experts=2"
    spec = read_model(written)
    mixtral = model("mixtral-8x7b")
    assert (total_parameters(spec), active_parameters(spec)) == (total_parameters(mixtral), active_parameters(mixtral))


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("layers=3", "needs more .*expected width, heads, vocabulary"),
        ("layers=3,with=4", "unknown size .*'with=4'.*did you mean 'width'"),
        ("layers=three", r"^layers: cannot read a quantity \(seen 'three'"),
        ("layers=3,layers=4", "layers is given twice"),
        ("layers=2,width=10,heads=3,vocabulary=100", r"width \(10\) is not divisible by heads \(3\).*set head_size"),
        ("layers=2,width=0,heads=0,vocabulary=9", "not divisible"),
        ("layers=0,width=64,heads=2,vocabulary=9", "layers must be at least 1, seen 0"),
        ("layers=2,width=64,heads=2,vocabulary=9,tied=1", "no flag .*expected tied=true or tied=false"),
        ("layers=2,width=64,heads=2,vocabulary=9,experts=2,active_experts=3", r"experts.active \(3\) exceeds"),
    ],
)
def test_numbers_that_make_no_model_are_named(written, message):
    with pytest.raises(RecipeError, match=message):
        read_model(written)


def test_a_convolutional_network_is_a_model_too():
    assert isinstance(model("resnet-50"), ConvNetSpec)


def test_numbers_say_where_tokens_may_go_and_what_is_predicted():
    text = "layers=4,width=64,heads=4,vocabulary=100,experts=16,active_experts=2,expert_groups=4,active_groups=2"
    mixture = read_model(f"{text},further_layers=1")
    assert (mixture.experts.groups, mixture.experts.active_groups, mixture.further_layers) == (4, 2, 1)
    with pytest.raises(RecipeError, match="experts.count .16. must be a multiple of experts.groups .3."):
        read_model(text.replace("expert_groups=4", "expert_groups=3"))


def test_batches_that_are_printed_are_whole_sequences_with_their_source():
    known = {name: each for name in NAMES if (each := published_model(name)).trained_batch_tokens}
    assert known["gpt3-175b"].trained_batch_tokens == pytest.approx(3.2e6, rel=0.02)
    for name, each in known.items():
        assert each.trained_batch_tokens % 2048 == 0 and 1 << 18 < each.trained_batch_tokens < 1 << 27, name
        text = (files("trainwright") / "catalog" / "models" / f"{name}.toml").read_text()
        assert re.search(r"^trained_batch_tokens = [0-9_]+  # arXiv \d{4}\.\d{5}, ", text, flags=re.MULTILINE), name


@pytest.mark.parametrize(
    "name", ["t5-large", "google/flan-t5-xxl", "mt5-base", "facebook/bart-large", "whisper-large-v3"]
)
def test_an_encoder_decoder_is_no_slip_of_the_pen(name):
    with pytest.raises(RecipeError, match="encoder-decoder models .* are not known") as caught:
        published_model(name)
    assert "did you mean" not in str(caught.value)


def test_a_decoder_of_a_near_name_is_found_or_corrected():
    with pytest.raises(RecipeError, match="did you mean bert-large"):
        published_model("bart-lrge".replace("bart", "bert"))
