"""RoBERTa against transformers: positions from the id of padding on, its own names of heads."""

from __future__ import annotations

import pytest
import torch
import transformers

from fixtures import encoder_parity as parity
from trainwright.artifact.model_folder import read_shape
from trainwright.core.errors import RecipeError
from trainwright.model import hf
from trainwright.model.families import roberta

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 61,
    "max_position_embeddings": 24,
    "num_labels": 3,
    "type_vocab_size": 1,
}
HEADS = ("RobertaForMaskedLM", "RobertaForSequenceClassification", "RobertaForTokenClassification", "RobertaModel")


@pytest.mark.parametrize("dtype", parity.TOLERANCES)
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("padding", [1, 5])
def test_everything_is_as_transformers_computes_it(head, dtype, padding):
    module = parity.theirs(head, SIZES | {"pad_token_id": padding}, dtype)
    network = parity.ours(module, roberta, dtype)
    assert network.spec.extra_positions == padding + 1
    for name, difference in parity.worst(module, network, roberta).items():
        assert difference <= parity.TOLERANCES[dtype], name


@pytest.mark.parametrize("head", HEADS)
def test_the_planner_counts_it_exactly(head):
    module = parity.theirs(head, SIZES)
    parity.counts_agree(module, parity.ours(module, roberta))


@pytest.mark.parametrize("head", HEADS)
def test_transformers_reads_what_we_write_and_we_read_what_it_writes(head, tmp_path):
    module = parity.theirs(head, SIZES)
    network = parity.ours(module, roberta)
    extra = {"id2label": {0: "a", 1: "b", 2: "c"}} if network.spec.classes else {}
    hf.write(tmp_path, network.spec, dict(network.named_parameters()), dtype=torch.float32, extra=extra)
    again = getattr(transformers, head).from_pretrained(tmp_path, attn_implementation="eager").eval()
    ids, seen = parity.batch(module)
    with torch.no_grad():
        assert torch.equal(again(ids, attention_mask=seen)[0], module(ids, attention_mask=seen)[0])
    module.save_pretrained(tmp_path / "theirs")
    spec = read_shape(tmp_path / "theirs")
    weights = hf.read_weights(tmp_path / "theirs", spec)
    assert (spec, weights.keys()) == (network.spec, dict(network.named_parameters()).keys())
    assert all(torch.equal(weights[name], parameter) for name, parameter in network.named_parameters())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_act": "relu"}, "hidden_act='relu'"),
        ({"is_decoder": True}, "is_decoder=True"),
        ({"architectures": ["RobertaForCausalLM"]}, "architectures='RobertaForCausalLM'"),
    ],
)
def test_what_changes_the_arithmetic_is_refused(change, message):
    with pytest.raises(RecipeError, match=f"here: this model needs {message}, which is not supported"):
        roberta.from_config(SIZES | change, where="here")


def test_defaults_are_those_of_transformers():
    theirs = transformers.RobertaConfig(**SIZES).to_dict()
    assert roberta.from_config(SIZES, where="test") == roberta.from_config(theirs, where="test")
