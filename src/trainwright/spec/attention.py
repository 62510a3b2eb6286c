"""What each kernel of attention is: how it is made, where it runs, what it works with.

Here alone a kernel is described: the networks, the planner and what refuses a plan ask ``attention_kernel``. A new one
is a row here with its name in ``AttentionKernel``, and the module that ``made_by`` names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from trainwright.core.errors import RecipeError
from trainwright.core.frozen import dataclass
from trainwright.spec.device import DeviceKind

AttentionKernel = Literal["auto", "math", "sdpa", "flex", "fa3"]
"""The whole matrix of scores; torch's fused kernel, flex_attention, FlashAttention-3; ``auto``: ``math`` for short
sequences on a CPU, else ``sdpa``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Attention:
    """A kernel of attention.

    Attributes:
        title: what its authors call it.
        made_by: what makes it of where the documents of a pass lie, so that no matrix of what is hidden is needed;
            empty: ``model.attention`` itself, which adds such a matrix to the scores.
        makes_scores: the whole matrix of scores is made; None: of short sequences on a CPU.
        drops_weights: it works with dropout of attention's weights.
        selective: its result is one that selective recomputation keeps.
        lists_blocks: it keeps lists of the blocks of scores that are seen.
        laid_as_queries: its result lies in memory as the queries do, on every device.
        compiled: it is compiled, whatever is not.
        in_graphs: it may stand inside of a CUDA graph.
        kinds: of devices that it runs on; empty: all.
        capability: what the compute capability of a device begins with; empty: any.
        elsewhere: what is said of other devices: a template with ``device`` and ``kind``.
        half_only: it computes in 16 bits alone.
        heads: the sizes of a head.
        package: that it is called from; empty: torch. ``install`` is how a user gets it.
    """

    title: str
    made_by: str = ""
    makes_scores: bool | None = False
    drops_weights: bool = True
    selective: bool = True
    lists_blocks: bool = False
    laid_as_queries: bool = False
    compiled: bool = False
    in_graphs: bool = True
    kinds: tuple[DeviceKind, ...] = ()
    capability: str = ""
    elsewhere: str = ""
    half_only: bool = False
    heads: range = range(1, 1 << 20)
    package: str = ""
    install: str = ""

    @property
    def masked(self) -> bool:
        """Returns whether it is told which tokens see which, and needs no matrix of it."""
        return bool(self.made_by)

    @property
    def sizes(self) -> str:
        """Returns the sizes of a head in words."""
        if self.heads.step == 1:
            return f"{self.heads.start} or larger"
        return f"multiples of {self.heads.step} up to {self.heads[-1]}"


_KERNELS: Mapping[AttentionKernel, Attention] = {
    "auto": Attention(title="torch's choice", makes_scores=None),
    "math": Attention(title="whole scores", makes_scores=True),
    "sdpa": Attention(title="torch's fused kernel"),
    "flex": Attention(
        title="flex_attention",
        made_by="trainwright.model.kernels.flex:flex",
        drops_weights=False,
        selective=False,
        lists_blocks=True,
        laid_as_queries=True,
        compiled=True,
        # Torch 2.11 to 2.13 has its gradients for these; of a processor and of mps it refuses them.
        kinds=("cuda", "rocm", "xpu"),
        elsewhere="torch computes no gradients of it on {device} ({kind})",
        heads=range(16, 1 << 20),  # Triton multiplies no narrower tiles
    ),
    "fa3": Attention(
        title="FlashAttention-3",
        made_by="trainwright.model.kernels.flash3:flash3",
        drops_weights=False,
        selective=False,
        in_graphs=False,
        kinds=("cuda",),
        capability="9.",  # written for Hopper's instructions, which no later generation has
        elsewhere="it is for Hopper (compute capability 9.0), not for {device}",
        half_only=True,
        heads=range(8, 257, 8),
        package="flash_attn_interface",
        install="pip install --no-build-isolation "
        "'git+https://github.com/Dao-AILab/flash-attention.git#subdirectory=hopper'",
    ),
}


def attention_kernel(name: AttentionKernel) -> Attention:
    """Returns the kernel of this name.

    Raises:
        RecipeError: there is none.
    """
    found = _KERNELS.get(name)
    if found is None:
        raise RecipeError("unknown kernel of attention", seen=name, expected=f"one of {', '.join(_KERNELS)}")
    return found
