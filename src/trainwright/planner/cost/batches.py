"""How large a batch is: what people begin with, what the next doubling costs in data, and what divides over devices."""

from __future__ import annotations

import math

import numpy as np

from trainwright.core.errors import RecipeError
from trainwright.core.frozen import dataclass
from trainwright.planner.counts.images import batch_text
from trainwright.planner.counts.layouts import Numbers, Values
from trainwright.spec.convnet import AnyModel

CRITICAL_IMAGES = 9_450.0
"""Epochs to 75.9 % on ImageNet are 34.7 (1 + 0.2 B / 9,450) within 6 % for batches of 1,632 to 67,840 images: a fit to
the 11 means of MLPerf's reference convergence points of ResNet-50 with LARS
(mlcommons/logging@0a0a659d8:mlperf_logging/rcp_checker/training_4.0.0/rcps_resnet.json, and training_2.0.0 for 35,840).
"""
CONVOLVED, PATCHED, TUNED_PATCHED = (256, "ResNet's"), (1024, "DeiT's"), (512, "as ViT is tuned:")
"""Images of a batch, and whose they are: He et al. (2016, arXiv 1512.03385, section 3.4); Touvron et al. (2021, arXiv
2012.12877, table 9); Dosovitskiy et al. (2021, arXiv 2010.11929, appendix B.1.1)."""
IMAGES_PER_DEVICE, MOST_IMAGES = 32, 8192
"""Goyal et al. (2017, arXiv 1706.02677): 32 on each of 256 GPUs are as good as 256 in all."""
NEAR = 0.9
"""The least part of a batch that is taken where more devices divide it."""
FAR = 1.5
"""Times the data of a tiny batch from which on a batch is far beyond the critical one."""
ROUNDED = 2.0
"""Times a short run, or the usual batch, that a batch may have which is rounded for its devices."""


def critical_batch_tokens(tokens: Values) -> Numbers:
    """Returns the batch beyond which a run of ``tokens`` needs 20 % more steps than in proportion (Zhang et al., 2024).

    arXiv 2410.21676: ``93.20 (N / 1e6)^0.47`` sequences of 512 tokens for compute-optimal runs with ``D = 20 N``, 85 M
    to 1.2 B parameters on C4; at fixed data it hardly depends on ``N`` (exponent 0.087), so it is written here by
    ``D``.
    """
    return np.asarray(512 * 93.20 * (np.asarray(tokens) / 20e6) ** 0.47)


@dataclass(frozen=True, kw_only=True, slots=True)
class CriticalBatch:
    """The batch at which a model needs 20 % more data than at a tiny one, and who measured that."""

    tokens: float
    source: str

    def price(self, batch_tokens: Values) -> Numbers:
        """Returns how many times the data of a tiny batch a batch needs for the same loss: 1.2 at the critical batch.

        Linear in the batch (McCandlish et al., 2018, arXiv 1812.06162, equation 2.11).
        """
        return np.asarray(1.0 + 0.2 * np.asarray(batch_tokens) / self.tokens)

    def is_far_below(self, batch_tokens: int) -> bool:
        """Returns whether a batch needs so much more data than a tiny one that a plan of it says so."""
        return bool(self.price(batch_tokens) >= FAR)

    def dearer(self, batch_tokens: int, *, than: int) -> float:
        """Returns how many times the data of another batch a batch needs for the same loss."""
        return float(self.price(batch_tokens) / self.price(than))


def critical_batch(model: AnyModel, tokens: float) -> CriticalBatch:
    """Returns the critical batch of a run of ``tokens``; of images it was measured on one data set."""
    if model.sees_images:
        return CriticalBatch(tokens=CRITICAL_IMAGES * model.batch_unit_tokens, source="MLPerf's ResNet-50")
    return CriticalBatch(tokens=float(critical_batch_tokens(tokens)), source="Zhang et al., 2024")


def critical_batch_tokens_at(loss_value: Values) -> Numbers:
    """Returns the same batch by loss: ``2e8 / L^(1 / 0.21)`` tokens on WebText2 (Kaplan et al., 2020, equation 1.4)."""
    return np.asarray(2e8 / np.asarray(loss_value) ** (1.0 / 0.21))


def usual_batch(model: AnyModel, devices: int, *, tunes: bool) -> tuple[int, str]:
    """Returns the images of a batch that people begin with on so many devices, and who does."""
    by_patches = model.unit == "tokens"
    least, who = (TUNED_PATCHED if tunes else PATCHED) if by_patches else CONVOLVED
    images = images_over(least, devices, least_each=IMAGES_PER_DEVICE)
    how = f"a power of two a device, {IMAGES_PER_DEVICE} or more, up to {MOST_IMAGES:,} in all (Goyal et al., 2017)"
    return images, f"{who} {least:,}, in {how}"


def images_over(images: int, devices: int, *, least_each: int = 1) -> int:
    """Returns about so many images, a power of two for each device: at most ``MOST_IMAGES``, for more devices too."""
    each = max(least_each, 1 << max(0, round(math.log2(images / devices))))
    while each > 1 and each * devices > MOST_IMAGES:
        each //= 2
    return int(min(each * devices, max(MOST_IMAGES, images)))


def sequences_over(sequences: int, devices: int) -> int:
    """Returns about so many sequences, whole ones for each device where there are enough; else for groups of devices.

    Of fewer than devices those from ``NEAR`` on are taken of which most groups have the same.
    """
    if sequences >= devices:
        return sequences - sequences % devices
    near = range(math.ceil(NEAR * sequences), sequences + 1)
    return max(near, key=lambda each: (math.gcd(each, devices), each))


def divisible(sequences: int, *, unit: int = 1) -> int:
    """Returns the multiple of ``unit`` within 5 % of ``sequences`` that most powers of two divide; else themselves."""
    least, most = math.ceil(sequences * (1 - 0.05)), int(sequences * (1 + 0.05))
    for power in range(sequences.bit_length(), -1, -1):
        step = unit << power
        nearest = [each for each in (sequences // step * step, -(-sequences // step) * step) if least <= each <= most]
        if nearest:
            return min(nearest, key=lambda each: abs(each - sequences))
    return sequences


def refuse_longer(model: AnyModel, batch: int, usual: int, run: float) -> None:
    """Raises where a batch is much longer than its ``run``, both in tokens with padding, and than the ``usual`` one.

    Raises:
        RecipeError: says so.
    """
    if batch <= ROUNDED * max(run, usual):
        return
    what, fix = "a batch is longer than the run", "set `tokens`, or `examples`, for a longer one"
    expected = f"at most the {batch_text(model, round(run))} of the run"
    raise RecipeError(what, field="batch_tokens", seen=batch_text(model, batch), expected=expected, fix=fix)
