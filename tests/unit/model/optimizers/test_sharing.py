"""Who shares a rate and a decay: matrices decay, tables may have a rate, matrices of a wider network a lower one."""

from __future__ import annotations

from fixtures import tiny_models as tiny
from trainwright.model.optimizers.sharing import grouped


def by_name(network, **how):
    names = {parameter: name for name, parameter in network.named_parameters()}
    return {
        names[parameter]: (group["rate"], group["peak_lr"], group["weight_decay"])
        for group in grouped(network, list(names.values()), **how)
        for parameter in group["params"]
    }


def test_matrices_alone_decay_and_a_table_may_have_its_own_rate() -> None:
    network = tiny.decoder("gpt2").requires_grad_(True)
    told = by_name(network, lr=1e-3, weight_decay=0.1, embedding_lr=4e-3)
    assert told["embedding"] == ("train/embedding_lr", 4e-3, 0.1)
    assert told["blocks.0.ffn.up.weight"] == ("train/lr", 1e-3, 0.1)
    assert told["blocks.0.ffn.up.bias"] == told["norm.weight"] == ("train/lr", 1e-3, 0.0)
    assert told.keys() == dict(network.named_parameters()).keys()


def test_matrices_of_a_wider_network_have_a_lower_rate_and_as_much_decay() -> None:
    network = tiny.decoder().requires_grad_(True)
    network.width_ratio = 4.0
    told = by_name(network, lr=1e-3, weight_decay=0.1)
    rate, peak, decay = told["blocks.1.attention.out.weight"]
    assert (rate, peak) == ("train/matrix_lr", 1e-3 / 4)
    assert peak * decay == 1e-3 * 0.1, "what decay takes from a weight in a step"
    assert told["embedding"] == ("train/lr", 1e-3, 0.1)


def test_what_is_frozen_is_in_no_group() -> None:
    network = tiny.decoder().requires_grad_(True)
    network.embedding.requires_grad_(False)
    assert "embedding" not in by_name(network, lr=1e-3, weight_decay=0.1)
