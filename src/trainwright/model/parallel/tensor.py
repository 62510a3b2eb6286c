"""Tensor parallelism: every matrix of a decoder lies on several ranks (Shoeybi et al., 2019).

Queries, keys, values, gate and up are cut by outputs, what brings them back into the stream by inputs, embedding and
head by entries of the vocabulary. Where heads of keys are fewer than ranks, neighbours keep copies of one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed import ProcessGroup

from trainwright.core.errors import RecipeError
from trainwright.model.decoder import Block, Decoder
from trainwright.model.dropout import Draw, Dropouts
from trainwright.model.layers import Linear
from trainwright.model.losses import Loss
from trainwright.model.network import Network
from trainwright.model.parallel import vocabulary
from trainwright.model.parallel.exchange import Ranks
from trainwright.planner.counts.pieces import chunk_tokens
from trainwright.runtime.cuts import Cut
from trainwright.runtime.mesh import Mesh

Part = tuple[int, tuple[range, ...], bool]
"""A dim, what of it each rank has, and whether gradients of copies are added up."""


class RowLinear(Linear):
    """A layer whose inputs lie on several ranks: their products are added up, and the bias once."""

    ranks: Ranks

    def forward(self, x: Tensor) -> Tensor:
        """Projects what is here, and adds up what all ranks have."""
        y = self.ranks.leave(F.linear(x, self.weight.to(x.dtype)))
        return y if self.bias is None else y + self.bias.to(x.dtype)


class TensorDecoder(Decoder):
    """A rank's part of a decoder."""

    ranks: Ranks
    entries: tuple[range, ...]
    """Of the vocabulary, by rank."""

    @property
    def first(self) -> int:
        """Returns the first entry of the vocabulary here."""
        return self.entries[self.ranks.index].start

    def embedded(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Returns what enters the first block, of the stream's tokens here."""
        x = self.ranks.leave(vocabulary.looked_up(tokens, self.embedding, self.first).to(self.compute_dtype))
        if self.positions is not None:
            x = x + F.embedding(self.rows_of(self.ranks.own(positions)), self.positions).to(x.dtype)
        return x

    def whole_tokens(self, stream: Tensor) -> int:
        """Returns how many tokens the sequences of token ids, or of a stream, have."""
        tokens = stream.shape[1]
        return self.ranks.all_tokens(tokens) if stream.is_floating_point() else tokens

    def stream_tokens(self, tokens: int) -> int:
        """Returns how many tokens of a sequence the stream has here."""
        return self.ranks.stream_tokens(tokens)

    def head_loss(self, hidden: Tensor, targets: Tensor, *, factors: Tensor | None = None) -> Loss:
        """Returns the summed cross-entropy over the whole vocabulary, and how many targets count."""
        if self.spec.classes:
            return super().head_loss(hidden, targets, factors=factors)
        return vocabulary.head_loss(
            self.head_input(hidden),
            self.head_weight,
            targets,
            first=self.first,
            group=self.ranks.group,
            chunk=self.kernels.loss_chunk_tokens,
            entries=max(map(len, self.entries)),
            multiple=self.kernels.pad_vocabulary,
            bias=self.head_bias,
            cap=self.logit_cap,
            chunk_loss=self.chunk_loss if self.training else None,
            factors=factors,
        )

    def token_losses(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Returns the cross-entropy of each target, 0 where it does not count."""
        if self.spec.classes:
            return super().token_losses(hidden, targets)
        head, rows = self.head_weight.to(hidden.dtype), chunk_tokens(max(map(len, self.entries)))
        how: dict[str, Any] = {
            "first": self.first,
            "group": self.ranks.group,
            "bias": self.head_bias,
            "cap": self.logit_cap,
        }
        pieces = zip(self.head_input(hidden).split(rows), targets.split(rows), strict=True)
        return torch.cat([vocabulary.token_losses(h, head, t, **how) for h, t in pieces])

    def logits(self, hidden: Tensor) -> Tensor:
        """Returns the logits of the classes.

        Raises:
            RecipeError: the head is cut, and a task's own loss asks for all logits on one rank.
        """
        if not self.spec.classes:
            raise RecipeError(
                "whole logits lie on no tensor-parallel rank",
                where="train.exec.layout",
                seen=f"tp={len(self.entries)}",
                expected="a loss of head_loss or token_losses",
                fix="set tp=1, or let the task's loss ask the network for one of these",
            )
        return super().logits(hidden)


@dataclass(frozen=True, slots=True)
class _StreamDraw(Draw):
    """What is dropped where a rank has some heads, and of the stream its own tokens."""

    ranks: Ranks

    def _without(self, x: Tensor, site: int, rate: float) -> Tensor:
        here = Draw(self.dropouts, self.samples, self.ranks.own(self.places, 0))
        return here._without(x, site, rate)  # noqa: SLF001  # the same class, at other places


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorDropouts(Dropouts):
    """The dropout of a rank's part of a decoder: as that of the whole, element by element."""

    ranks: Ranks

    def draw(self, tokens: Tensor, samples: Tensor | None, places: Tensor | None) -> Draw:
        """Returns what is dropped from these sequences, given as token ids or as a stream."""
        if places is None:
            size = tokens.shape[1]
            size = self.ranks.all_tokens(size) if tokens.is_floating_point() else size
            places = torch.arange(size, device=tokens.device)
        whole = Dropouts.draw(self, tokens, samples, places)
        return _StreamDraw(whole.dropouts, whole.samples, whole.places, self.ranks)


def even(size: int, ranks: int) -> tuple[range, ...]:
    """Returns neighbouring parts of so many things, of sizes that differ by one at most."""
    return tuple(range(size * rank // ranks, size * (rank + 1) // ranks) for rank in range(ranks))


def key_heads(heads: int, ranks: int) -> tuple[range, ...]:
    """Returns the key heads of each rank: those that its queries look at; more ranks than heads keep copies."""
    if heads >= ranks:
        return even(heads, ranks)
    return tuple(range(heads * rank // ranks, heads * rank // ranks + 1) for rank in range(ranks))


def cut_matrices(network: Network, mesh: Mesh) -> dict[str, Cut]:
    """Turns a whole network, or a pipeline stage of it, into this rank's part in place; returns its cuts by name.

    Raises:
        RecipeError: the network is no decoder.
    """
    if not isinstance(network, Decoder):
        raise RecipeError(
            "the matrices of this network cannot be shared",
            where="train.exec.layout",
            seen=type(network).__name__,
            expected=f"a {Decoder.__name__}",
            fix="set tp=1",
        )
    axis = mesh.axis("tp")
    assert axis is not None
    group: ProcessGroup = axis.get_group()
    size, index = mesh.size("tp"), mesh.index("tp")
    ranks = Ranks(size=size, index=index, group=group.group_name, by_tokens=mesh.parallel.sequence_parallel)
    cuts = {
        name: Cut(group=group, rank=index, whole=network.get_parameter(name).shape, dim=dim, parts=parts, summed=summed)
        for name, (dim, parts, summed) in _parts(network, ranks).items()
    }
    for name, cut in cuts.items():
        module, _, last = name.rpartition(".")
        whole = network.get_parameter(name)
        part = nn.Parameter(cut.take(whole.detach()), requires_grad=whole.requires_grad)
        network.get_submodule(module).register_parameter(last, part)
    _become(network, ranks)
    return cuts


def _parts(network: Decoder, ranks: Ranks) -> dict[str, Part]:
    """Returns how each parameter is cut; without those whose gradient every rank has whole."""
    spec, parts = network.spec, {}
    query, entries = _rows(even(spec.heads, ranks.size), spec.head_size), even(spec.vocabulary, ranks.size)
    key, copies = _rows(key_heads(spec.kv_heads, ranks.size), spec.head_size), spec.kv_heads < ranks.size
    inner = even(spec.ffn_width, ranks.size)
    by_outputs = {"query": (query, False), "key": (key, copies), "value": (key, copies)}
    by_outputs |= {"gate": (inner, False), "up": (inner, False)}
    by_inputs = {"out": query, "down": inner}
    for name, parameter in network.named_parameters():
        module, _, last = name.rpartition(".")
        layer = module.rpartition(".")[2]
        if layer in by_outputs:
            parts[name] = 0, *by_outputs[layer]
        elif layer in by_inputs and last == "weight":
            parts[name] = 1, by_inputs[layer], False
        elif name in ("embedding", "head_bias") or (name == "head.weight" and not spec.classes):
            parts[name] = 0, entries, False
        elif layer in ("query_norm", "key_norm") or (module != "head" and ranks.by_tokens):
            # Of norms, of what is added once and of positions each rank sees its own tokens, of norms of heads its own.
            parts[name] = 0, (range(parameter.shape[0]),) * ranks.size, True
    return parts


def _rows(heads: Sequence[range], head_size: int) -> tuple[range, ...]:
    return tuple(range(each.start * head_size, each.stop * head_size) for each in heads)


def _become(network: Decoder, ranks: Ranks) -> None:
    """Lets a decoder and its layers compute with what is left of their weights; names stay."""
    for block in network.blocks:
        assert isinstance(block, Block)
        for norm in (block.attention_norm, block.ffn_norm):
            if norm is not None:  # both halves of a block may share one
                norm.register_forward_hook(_then(ranks.enter))
        for layer in (block.attention.out, block.ffn.down):
            layer.__class__ = RowLinear
            assert isinstance(layer, RowLinear)
            layer.ranks = ranks
    if hasattr(network, "norm"):
        network.norm.register_forward_hook(_then(ranks.join if network.spec.classes else ranks.enter))
    heads = even(network.spec.heads, ranks.size)[ranks.index]
    if network.alibi is not None:
        network.alibi = network.alibi.part(heads)
    if network.dropouts is not None:
        first = heads.start
        network.dropouts = TensorDropouts(
            network.dropouts.rates, network.dropouts.layers, first_head=first, ranks=ranks
        )
    network.__class__ = TensorDecoder
    assert isinstance(network, TensorDecoder)
    network.ranks, network.entries = ranks, even(network.spec.vocabulary, ranks.size)


def _then(step: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    """Returns a hook that does one more thing with what a module returns."""
    return lambda module, given, result: step(result)
