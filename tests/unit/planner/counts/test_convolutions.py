"""The table of convolutions against the modules of transformers' ResNets: shapes, image sizes, operations."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch

from fixtures.reference_models import SMALL, build
from trainwright.planner.counts.convolutions import classifier_flops, classifier_parameters, convolutions
from trainwright.planner.counts.flops import count_flops
from trainwright.planner.counts.parameters import active_parameters, parameter_counts, total_parameters

RESNETS = [name for name in SMALL if name.startswith("resnet")]


@pytest.mark.parametrize("image", [64, 97])
@pytest.mark.parametrize("name", RESNETS)
def test_every_convolution_is_that_of_the_module(name, image):
    module, spec = build(*SMALL[name])
    seen = Counter()

    def note(convolution, _, result):
        shape = convolution.out_channels, convolution.in_channels, convolution.kernel_size[0], convolution.stride[0]
        seen[*shape, result.shape[-1]] += 1

    for part in module.modules():
        if isinstance(part, torch.nn.Conv2d):
            part.register_forward_hook(note)
    module(pixel_values=torch.zeros(1, 3, image, image, device="meta"))
    ours = Counter()
    for c in convolutions(replace(spec, image_size=image)):
        ours[c.outputs, c.inputs, c.kernel, c.stride, c.size] += c.layers
    assert ours == seen


@pytest.mark.parametrize("name", RESNETS)
def test_components_add_up(name):
    _, spec = build(*SMALL[name])
    assert parameter_counts(spec)["head"] == classifier_parameters(spec)
    assert active_parameters(spec) == total_parameters(spec) == sum(parameter_counts(spec).values())
    flops = count_flops(spec, sequences=3, sequence_tokens=1)
    assert flops.head == 3 * classifier_flops(spec)
    assert flops.attention == 0
    # Pixels need no gradient: one product of the stem in the backward pass, two of all others.
    assert flops.training == 3 * flops.forward - flops.stem
