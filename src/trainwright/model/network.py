"""``Network``: what tasks, optimizers and the trainer may ask of a model, whatever is inside it.

Shape legend: ``batch``, ``seq`` (tokens), ``width``, ``rows`` (of hidden states), ``outputs`` (of the head: entries of
the vocabulary, or classes).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from trainwright.model.layers import Linear
from trainwright.model.losses import PLAIN, Head, Loss, linear_cross_entropy, token_cross_entropy
from trainwright.spec.model import ModelSpec
from trainwright.spec.workload import DEFAULT_KERNELS, KernelChoice

if TYPE_CHECKING:
    from trainwright.model.cache import KVCache
    from trainwright.model.dropout import Dropouts
    from trainwright.spec.parts.adaptation import Adaptation


def unbuilt(network: str, spec: ModelSpec, built: Mapping[str, tuple[object, ...]]) -> tuple[str, ...]:
    """Returns a line for each field of which a network computes other values than the spec has; empty: it is built."""
    return tuple(
        f"{network} computes {name}={' or '.join(map(str, values))}, not {name}={getattr(spec, name)}"
        for name, values in built.items()
        if getattr(spec, name) not in values
    )


class Network(nn.Module, ABC):
    """Tokens to hidden states, and a head over them. Parameters are fp32; activations have ``compute_dtype``.

    Precision and kernels are set where the network is built and never change, so that a compiled or sharded network
    cannot disagree with the one that it was made from.
    """

    spec: ModelSpec
    compute_dtype: torch.dtype
    kernels: KernelChoice = DEFAULT_KERNELS
    blocks: nn.ModuleList
    """The repeated parts, first to last: units of recomputation, sharding and pipeline stages."""
    keeping: Callable[[], AbstractContextManager[None]] = nullcontext
    """Entered around a training pass: says where what it saves waits for the backward pass."""
    expert_ranks: int = 1
    """Among how many ranks the experts of each mixture are divided."""
    chunk_loss: Callable[..., Tensor] | None = None
    """What training computes in place of a chunk's cross-entropy (``model.regularisation``); None: that itself."""
    penalties: Callable[[Mapping[str, nn.Parameter]], None] | None = None
    """Adds what weights cost to the gradients of a whole batch, given what is trained; None: they cost nothing."""
    width_ratio: float = 1.0
    """How many times as wide it is as the network that rates and first weights of its blocks' matrices are of (muP)."""
    adaptation: Adaptation | None = None
    """The adapters that are trained; the other weights are left to their base. None: they are all its own."""
    dropouts: Dropouts | None = None
    """What training drops; None: nothing, and no sequence needs a key."""
    stash: int | None = None
    """The saved tensors that wait on the device; None: all of them."""

    @abstractmethod
    def forward(
        self,
        tokens: Int[Tensor, "batch seq"] | Float[Tensor, "batch seq width"],
        *,
        positions: Int[Tensor, "#batch seq"] | None = None,
        documents: Int[Tensor, "batch seq"] | None = None,
        cache: KVCache | None = None,
        samples: Int[Tensor, " batch"] | None = None,
        places: Int[Tensor, " seq"] | None = None,
        part: range | None = None,
    ) -> Float[Tensor, "batch seq width"]:
        """Returns normalised hidden states.

        Args:
            tokens: token ids; for a ``part`` that does not begin with block 0, what the part before it returned.
            positions: where each token stands in its document; 0, 1, 2... when None.
            documents: an id per token, of whole sequences; no token attends to a token with another id.
            cache: keys and values of earlier tokens; the caller has selected slots and ``positions`` in it.
            samples: 64 bits of each sequence's own, which decide what training drops (``model.dropout``).
            places: where each token stands in its whole sequence; 0, 1, 2... when None. With them a network that
                shares sequences with other ranks (``model.parallel.context``) attends to what those have.
            part: numbers of the blocks to run, a pipeline stage; what it returns is normalised by the last stage alone.
        """

    @property
    @abstractmethod
    def head_weight(self) -> Float[Tensor, "outputs width"]:
        """Returns the head's matrix; the embedding itself where they are tied."""

    @property
    def logit_bias(self) -> Float[Tensor, " outputs"] | None:
        """Returns what is added to the head's outputs; None where nothing is."""
        return None

    def matrices(self) -> Mapping[str, nn.Parameter]:
        """Returns by name the matrices of the blocks, between embedding and head: what Muon orthogonalises."""
        inside = ((f"blocks.{name}", parameter) for name, parameter in self.blocks.named_parameters())
        return {name: parameter for name, parameter in inside if parameter.ndim == 2}

    @abstractmethod
    def tables(self) -> Mapping[str, nn.Parameter]:
        """Returns by name the parameters that are looked up by row: most rows have no gradient in a step."""

    @abstractmethod
    def initial(self, seed: int) -> Iterator[tuple[str, Tensor]]:
        """Yields each parameter's first value by name, whole, as a function of the seed alone.

        It is asked of a whole network, whose parameters need no memory; each value is made when its turn comes.
        """

    @property
    def shapes(self) -> dict[str, torch.Size]:
        """Returns every parameter's shape by name."""
        return {name: parameter.shape for name, parameter in self.named_parameters()}

    @torch.no_grad()
    def initialise(self, seed: int) -> None:
        """Fills every parameter of a whole network with its first value."""
        parameters = dict(self.named_parameters())
        for name, value in self.initial(seed):
            parameters[name].copy_(value)

    def stored(self) -> Iterator[tuple[str, Tensor]]:
        """Yields by name what a checkpoint and the result hold: all that training moves, and what no base has.

        Parameters come first, then what no gradient moves and training does; with adapters trained parameters alone.
        """
        if self.adaptation is not None:
            yield from self.trained().items()
            return
        yield from self.named_parameters()
        for name, buffer in self.named_buffers():
            module, _, last = name.rpartition(".")
            if last not in self.get_submodule(module)._non_persistent_buffers_set:  # noqa: SLF001  # torch says it there
                yield name, buffer

    def before_update(self, of_sequence: Tensor) -> None:
        """Hears before the passes of an update what is multiplied with a loss of its own of each sequence.

        Args:
            of_sequence: 1 / (sequences of the whole batch), times the factor of scaled losses.
        """

    def counts_sequences(self, number: int) -> None:
        """Hears that of the next pass's sequences the first ``number`` belong to the batch, and others fill it up."""

    def after_update(self, add_up: Callable[[Tensor], Tensor], *, made: bool) -> Mapping[str, Tensor]:
        """Moves what no gradient moves, after the optimizer; returns what to report of the update, by metric.

        Args:
            add_up: adds up a tensor over the ranks that saw other sequences or have other layers.
            made: whether the update was made, or left out.
        """
        return {}

    def use(self, kernels: KernelChoice) -> None:
        """Take over the kernel of the loss; a ValueError says that this network's attention cannot be chosen."""
        if kernels.attention not in ("auto", self.kernels.attention):
            raise ValueError(f"{type(self).__name__} has one attention, not attention={kernels.attention}")
        self.kernels = kernels

    def recompute_in(self, count: int) -> None:
        """Compute so many blocks again in the backward pass; a ValueError says that this network cannot choose."""
        raise ValueError(f"{type(self).__name__} recomputes all of its blocks or none, not {count}")

    def trained(self) -> dict[str, nn.Parameter]:
        """Returns by name the parameters that training changes."""
        return {name: parameter for name, parameter in self.named_parameters() if parameter.requires_grad}

    def head_name(self) -> str | None:
        """Returns the name of the head's matrix among the parameters; None where it is the embedding itself."""
        head, tables = self.head_weight, self.tables()
        names = (name for name, parameter in self.named_parameters() if parameter is head and name not in tables)
        return next(names, None)

    def head_names(self) -> frozenset[str]:
        """Returns the names of all parameters of the head: another task on the same blocks has others."""
        biases = (name for name, each in self.named_parameters() if each is self.logit_bias)
        return frozenset(name for name in (self.head_name(), *biases) if name is not None)

    def held(self) -> Iterator[Tensor]:
        """Yields all weights as they are kept: parameters, and matrices that are kept in fewer bits than those have."""
        yield from self.parameters()
        for module in self.modules():
            if isinstance(module, Linear):
                yield from module.buffers(recurse=False)

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device

    @property
    def has_position_table(self) -> bool:
        """Returns whether absolute positions matter, so that each document needs its own count from 0."""
        return self.spec.positions == "learned"

    def logits(self, hidden: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch outputs"]:
        """Returns the head's outputs in fp32 (fp64 of fp64), unnormalised."""
        hidden = self.head_input(hidden)
        weight = self.head_weight.to(hidden.dtype)
        return Head(weight, weight.shape[0], self.logit_bias, self.logit_cap).logits(hidden)

    @property
    def logit_cap(self) -> float | None:
        """Returns the soft bound of logits over the vocabulary; classes have none."""
        return None if self.spec.classes else self.spec.logit_cap

    def head_input(self, hidden: Tensor) -> Tensor:
        """Returns what the head multiplies: hidden states, by which logits over the vocabulary are scaled."""
        divisor = self.spec.scales.logits_divisor
        return hidden if divisor == 1 or self.spec.classes else hidden / divisor

    def head_loss(
        self,
        hidden: Float[Tensor, "rows width"],
        targets: Int[Tensor, " rows"],
        *,
        factors: Float[Tensor, " rows"] | None = None,
    ) -> Loss:
        """Returns the summed cross-entropy of the head's outputs in nats, and how many targets count.

        In training it is with the terms of ``train.loss``, where there are any. With ``factors`` the gradient is that
        of the sum of ``factors * cross-entropies``, while the value stays the plain sum.
        """
        chunk, multiple = self.kernels.loss_chunk_tokens, self.kernels.pad_vocabulary
        return linear_cross_entropy(
            self.head_input(hidden),
            self.head_weight,
            targets,
            bias=self.logit_bias,
            chunk=chunk,
            chunk_loss=(self.chunk_loss if self.training else None) or PLAIN,
            multiple=multiple,
            cap=self.logit_cap,
            factors=factors,
        )

    def token_losses(
        self, hidden: Float[Tensor, "rows width"], targets: Int[Tensor, " rows"]
    ) -> Float[Tensor, " rows"]:
        """Returns the cross-entropy of each target in nats, 0 where it does not count."""
        hidden = self.head_input(hidden)
        return token_cross_entropy(hidden, self.head_weight, targets, self.logit_bias, cap=self.logit_cap)

    def stream_tokens(self, tokens: int) -> int:
        """Returns how many tokens of a sequence this rank's stages of a pipeline hand on."""
        return tokens
