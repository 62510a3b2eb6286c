"""BERT against transformers: hidden states, logits, all gradients, configurations and weights both ways."""

from __future__ import annotations

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from fixtures import encoder_parity as parity
from trainwright.artifact.model_folder import WEIGHTS, read_shape
from trainwright.core.errors import DataError, RecipeError
from trainwright.model import hf
from trainwright.model.bundle import build
from trainwright.model.families import bert
from trainwright.spec.parts.dropout import Dropout

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 61,
    "max_position_embeddings": 24,
    "num_labels": 3,
}
HEADS = ("BertForMaskedLM", "BertForSequenceClassification", "BertForTokenClassification", "BertModel")


@pytest.mark.parametrize("dtype", parity.TOLERANCES)
@pytest.mark.parametrize("head", HEADS)
def test_everything_is_as_transformers_computes_it(head, dtype):
    module = parity.theirs(head, SIZES, dtype)
    network = parity.ours(module, bert, dtype)
    for name, difference in parity.worst(module, network, bert).items():
        assert difference <= parity.TOLERANCES[dtype], name


@pytest.mark.parametrize("head", HEADS)
def test_the_planner_counts_it_exactly(head):
    module = parity.theirs(head, SIZES)
    parity.counts_agree(module, parity.ours(module, bert))


@pytest.mark.parametrize("head", HEADS)
def test_transformers_reads_what_we_write_and_we_read_what_it_writes(head, tmp_path):
    module = parity.theirs(head, SIZES)
    network = parity.ours(module, bert)
    extra = {"id2label": {0: "a", 1: "b", 2: "c"}} if network.spec.classes else {}
    hf.write(tmp_path, network.spec, dict(network.named_parameters()), dtype=torch.float32, extra=extra)
    again = getattr(transformers, head).from_pretrained(tmp_path, attn_implementation="eager").eval()
    ids, seen = parity.batch(module)
    with torch.no_grad():
        assert torch.equal(again(ids, attention_mask=seen)[0], module(ids, attention_mask=seen)[0])
    module.save_pretrained(tmp_path / "theirs", max_shard_size="20KB")
    assert len(list((tmp_path / "theirs").glob("*.safetensors"))) > 1
    spec = read_shape(tmp_path / "theirs")
    weights = hf.read_weights(tmp_path / "theirs", spec)
    assert (spec, weights.keys()) == (network.spec, dict(network.named_parameters()).keys())
    assert all(torch.equal(weights[name], parameter) for name, parameter in network.named_parameters())


def test_old_names_of_norms_and_other_heads_are_taken_as_the_published_ones_have_them(tmp_path):
    """bert-base-uncased's file has gamma and beta, a pooler and a head for the next sentence."""
    module = parity.theirs("BertForPreTraining", SIZES)
    module.save_pretrained(tmp_path)
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    weights = {}
    for name, weight in load_file(tmp_path / WEIGHTS).items():
        for new, before in old.items():
            name = name.replace(new, before)
        weights[name] = weight
    save_file(weights, tmp_path / WEIGHTS)
    config = json.loads((tmp_path / "config.json").read_text()) | {"architectures": ["BertForMaskedLM"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    spec = read_shape(tmp_path)
    network = build(spec, hf.read_weights(tmp_path, spec), where=tmp_path)
    ids, seen = parity.batch(module)
    with torch.no_grad():
        logits = network.logits(network(ids, documents=1 - seen))
        reference = module(ids, attention_mask=seen).prediction_logits
    torch.testing.assert_close(logits[seen > 0], reference[seen > 0], atol=1e-4, rtol=0)


def test_a_weight_that_has_no_place_is_named(tmp_path):
    parity.theirs("BertForMaskedLM", SIZES).save_pretrained(tmp_path)
    save_file(load_file(tmp_path / WEIGHTS) | {"bert.adapter.weight": torch.ones(2)}, tmp_path / WEIGHTS)
    with pytest.raises(DataError, match=r"no place in this model \(seen bert\.adapter\.weight"):
        hf.read_weights(tmp_path, read_shape(tmp_path))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_act": "relu"}, "hidden_act='relu'"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type='relative_key'"),
        ({"is_decoder": True}, "is_decoder=True"),
        ({"add_cross_attention": True}, "add_cross_attention=True"),
        ({"architectures": ["BertForMultipleChoice"]}, "architectures='BertForMultipleChoice'"),
    ],
)
def test_what_changes_the_arithmetic_is_refused(change, message):
    with pytest.raises(RecipeError, match=f"here: this model needs {message}, which is not supported"):
        bert.from_config(SIZES | change, where="here")


def test_defaults_are_those_of_transformers():
    theirs = transformers.BertConfig(**SIZES).to_dict()
    assert bert.from_config(SIZES, where="test") == bert.from_config(theirs, where="test")


def test_what_has_no_form_there_is_refused(tiny):
    with pytest.raises(ValueError, match="no grouped|kv_heads = heads"):
        bert.to_config(tiny.spec("bert", kv_heads=2))
    with pytest.raises(ValueError, match=r"model\.dropout\.embedding = model\.dropout\.residual"):
        bert.to_config(tiny.spec("bert", dropout=Dropout(residual=0.1)))
    rates = bert.to_config(tiny.spec("bert", dropout=Dropout(residual=0.1, embedding=0.1, attention=0.2)))
    assert (rates["hidden_dropout_prob"], rates["attention_probs_dropout_prob"]) == (0.1, 0.2)
