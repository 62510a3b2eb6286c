"""``Convolutions``: the stages of a residual convolutional network."""

from __future__ import annotations

from trainwright.core.frozen import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Convolutions:
    """A stem of 7x7, then ``depths[i]`` residual blocks of ``widths[i]`` channels each (He et al., 2015).

    A bottleneck block is 1x1, 3x3, 1x1 with a quarter of its channels inside; a plain one is two 3x3. Every stage but
    the first (``halves_first``: that too) halves the image, in the 3x3 convolution (ResNet v1.5) or, with
    ``stride_first``, in the 1x1 before it (the original).
    """

    depths: tuple[int, ...]
    widths: tuple[int, ...]
    stem_width: int = 64
    bottleneck: bool = True
    stride_first: bool = False
    halves_first: bool = False

    @property
    def blocks(self) -> int:
        """Residual blocks of all stages."""
        return sum(self.depths)

    def problems(self) -> tuple[str, ...]:
        """Returns every reason why no such network can be built; empty where there is none."""
        problems = [] if self.stem_width > 0 else [f"stem_width must be at least 1, seen {self.stem_width}"]
        if not self.depths or len(self.depths) != len(self.widths):
            problems.append(f"depths ({self.depths}) and widths ({self.widths}) must name the same stages")
        if any(size < 1 for size in (*self.depths, *self.widths)):
            problems.append(f"depths and widths must be at least 1, seen {self.depths} and {self.widths}")
        if self.bottleneck and any(width % 4 for width in self.widths):
            problems.append(f"widths of bottleneck blocks must be multiples of 4, seen {self.widths}")
        if self.stride_first and not self.bottleneck:
            problems.append("stride_first is for bottleneck blocks: plain ones have no 1x1 before their 3x3")
        return tuple(problems)

    def all_problems(self, layers: int, width: int) -> tuple[str, ...]:
        """Returns ``problems``; where there is none, those of a network of this depth and width with such stages."""
        if problems := self.problems():
            return problems
        pairs = (("layers", layers, self.blocks), ("width", width, self.widths[-1]))
        return tuple(f"{name} ({seen}) is not the {size} of its stages" for name, seen, size in pairs if seen != size)
