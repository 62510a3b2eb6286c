"""ModernBERT against transformers: hidden states, logits, all gradients, configurations and weights both ways."""

from __future__ import annotations

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from fixtures import encoder_parity as parity
from fixtures.family_parity import exactly
from trainwright.artifact.model_folder import WEIGHTS, read_shape
from trainwright.core.errors import DataError
from trainwright.model import hf
from trainwright.model.families import modernbert
from trainwright.spec.parts.dropout import Dropout

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 61,
    "max_position_embeddings": 24,
    "num_labels": 3,
    "local_attention": 4,
    "pad_token_id": 0,
    **dict.fromkeys(("bos_token_id", "cls_token_id", "eos_token_id", "sep_token_id")),
}
"""Four layers: the first and the last see all tokens, those between two on each side."""
BIASED = {"attention_bias": True, "norm_bias": True, "decoder_bias": False}
OTHERWISE = {
    "mlp_bias": True,
    "classifier_bias": True,
    "classifier_pooling": "mean",
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
    "rope_parameters": {
        "full_attention": {"rope_theta": 500.0, "rope_type": "default"},
        "sliding_attention": {"rope_theta": 90.0, "rope_type": "default"},
    },
    "local_attention": 7,
    "norm_eps": 1e-3,
}
KINDS = {"MaskedLM": BIASED, "SequenceClassification": OTHERWISE, "TokenClassification": OTHERWISE | BIASED}
CASES = {f"ModernBertFor{name}": ({}, other) for name, other in KINDS.items()} | {"ModernBertModel": ({}, OTHERWISE)}
EVERY = [(head, number) for head in CASES for number in (0, 1)]


def theirs(head, number, dtype=torch.float32):
    return parity.theirs(head, SIZES | CASES[head][number], dtype)


@pytest.mark.parametrize(("head", "number"), EVERY)
def test_everything_is_as_transformers_computes_it(head, number):
    module = theirs(head, number)
    for name, difference in parity.worst(module, parity.ours(module, modernbert), modernbert).items():
        assert difference <= parity.TOLERANCES[torch.float32], name


@pytest.mark.parametrize(("head", "number"), EVERY)
def test_and_to_the_last_digits_where_the_reference_keeps_them(head, number):
    with exactly("modernbert"):
        module = theirs(head, number, torch.float64)
        network = parity.ours(module, modernbert, torch.float64)
        for name, difference in parity.worst(module, network, modernbert).items():
            assert difference <= parity.TOLERANCES[torch.float64], name


@pytest.mark.parametrize(("head", "number"), EVERY)
def test_the_planner_counts_it_exactly(head, number):
    module = theirs(head, number)
    parity.counts_agree(module, parity.ours(module, modernbert))


@pytest.mark.parametrize(("head", "number"), EVERY)
@pytest.mark.parametrize("tied", [True, False])
def test_transformers_reads_what_we_write_and_we_read_what_it_writes(head, number, tied, tmp_path):
    module = parity.theirs(head, SIZES | CASES[head][number] | {"tie_word_embeddings": tied})
    network = parity.ours(module, modernbert)
    extra = {"id2label": {0: "a", 1: "b", 2: "c"}} if network.spec.classes else {}
    hf.write(tmp_path, network.spec, dict(network.named_parameters()), dtype=torch.float32, extra=extra)
    again, told = getattr(transformers, head).from_pretrained(
        tmp_path, attn_implementation="eager", output_loading_info=True
    )
    assert not any(told.values()), "nothing is missing, nothing left over"
    ids, seen = parity.batch(module)
    with torch.no_grad():
        assert torch.equal(again.eval()(ids, attention_mask=seen)[0], module(ids, attention_mask=seen)[0])
    module.save_pretrained(tmp_path / "theirs", max_shard_size="20KB")
    spec = read_shape(tmp_path / "theirs")
    weights = hf.read_weights(tmp_path / "theirs", spec)
    assert (spec, weights.keys()) == (network.spec, dict(network.named_parameters()).keys())
    assert read_shape(tmp_path).body_differences(spec) == ()
    assert all(torch.equal(weights[name], parameter) for name, parameter in network.named_parameters())


def test_sparse_prediction_is_the_same_loss():
    """It leaves logits out whose targets do not count: our loss never has them."""
    module = parity.theirs("ModernBertForMaskedLM", SIZES | {"sparse_prediction": True})
    network = parity.ours(module, modernbert)
    ids, seen = parity.batch(module)
    targets = torch.where((ids % 3 == 0) & (seen > 0), ids, -100)
    with torch.no_grad():
        loss, weight = network.head_loss(network(ids, documents=1 - seen).flatten(0, 1), targets.flatten())
        expected = module(ids, attention_mask=seen, labels=targets).loss
    assert float(loss / weight) == pytest.approx(float(expected), rel=1e-5)


def test_a_copy_of_tied_weights_has_a_place_and_others_are_named(tmp_path):
    module = parity.theirs("ModernBertForMaskedLM", SIZES)
    module.save_pretrained(tmp_path)
    weights = load_file(tmp_path / WEIGHTS)
    copied = {"decoder.weight": weights["model.embeddings.tok_embeddings.weight"].clone()}
    save_file(weights | copied, tmp_path / WEIGHTS)
    assert hf.read_weights(tmp_path, read_shape(tmp_path))
    save_file(weights | {"model.layers.0.attn_norm.weight": torch.ones(32)}, tmp_path / WEIGHTS)
    with pytest.raises(DataError, match=r"no place in this model \(seen model\.layers\.0\.attn_norm\.weight"):
        hf.read_weights(tmp_path, read_shape(tmp_path))


def test_what_has_no_form_there_is_refused(tiny):
    with pytest.raises(ValueError, match="kv_heads = heads"):
        modernbert.to_config(tiny.spec("modernbert", kv_heads=2))
    with pytest.raises(ValueError, match="qkv_bias = output_bias"):
        modernbert.to_config(tiny.spec("modernbert", qkv_bias=True))


def test_patterns_of_layers_and_rates_are_said_for_both_versions(tiny):
    rates = Dropout(residual=0.1, embedding=0.2, attention=0.3)
    config = modernbert.to_config(tiny.spec("modernbert", layers=7, window_layers=(1, 2, 4, 5), dropout=rates))
    assert (config["global_attn_every_n_layers"], config["local_attention"]) == (3, 128)
    assert (config["global_rope_theta"], config["local_rope_theta"]) == (10_000.0, 10_000.0)
    kinds = ("mlp_dropout", "embedding_dropout", "attention_dropout")
    assert [config[name] for name in kinds] == [0.1, 0.2, 0.3]
    uneven = modernbert.to_config(tiny.spec("modernbert", window_layers=(0, 2)))
    assert "global_attn_every_n_layers" not in uneven
    assert uneven["layer_types"] == ["sliding_attention", "full_attention", "sliding_attention"]
