"""The contract of a model family: what every name in ``model.family`` promises, as tests to inherit.

::

    class TestMine(FamilyContract):
        family = "my_package.families:FAMILY"

That logits equal those of another implementation is for the family's own test: only it knows which.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from trainwright.artifact.model_folder import read_shape
from trainwright.model import hf
from trainwright.model.build import build_network
from trainwright.model.network import Network
from trainwright.planner.counts.parameters import total_parameters
from trainwright.spec.families.family import FAMILY, Family
from trainwright.spec.sections.model import ModelSection

VOCABULARY = 50


class FamilyContract:
    """A subclass names the family, and sizes where the defaults do not suit it."""

    family: ClassVar[str]
    """A name of ours, or ``package.module:name`` of a ``Family``."""
    sizes: ClassVar[dict[str, int]] = {"layers": 2, "width": 32, "heads": 4, "context_tokens": 16}

    @pytest.fixture(params=[True, False], ids=["tied", "untied"])
    def network(self, request: pytest.FixtureRequest) -> Network:
        """The network of the family's sizes, initialised, in evaluation mode."""
        section = ModelSection.model_validate({"family": self.family, "tied": request.param} | self.sizes)
        network = build_network(section.spec(vocabulary=VOCABULARY))
        network.initialise(7)
        return network.eval()

    def test_the_planner_counts_its_parameters_exactly(self, network: Network) -> None:
        """Plans rest on it."""
        assert total_parameters(network.spec) == sum(parameter.numel() for parameter in network.parameters())

    def test_its_weights_are_a_function_of_the_seed(self, network: Network) -> None:
        """Whatever torch's own generator did before."""
        other = build_network(network.spec)
        torch.manual_seed(1)
        other.initialise(7)
        for name, parameter in other.named_parameters():
            assert torch.equal(parameter, dict(network.named_parameters())[name]), name

    def test_no_token_sees_a_later_one_but_in_an_encoder(self, network: Network) -> None:
        """What comes behind a token changes nothing before it; in an encoder it does."""
        tokens = torch.randint(0, VOCABULARY, (2, 12), generator=torch.Generator().manual_seed(0))
        changed = tokens.clone()
        changed[:, 7:] = (changed[:, 7:] + 1) % VOCABULARY
        with torch.no_grad():
            before, after = network(tokens), network(changed)
        if network.spec.kind == "decoder":
            torch.testing.assert_close(before[:, :7], after[:, :7], atol=1e-5, rtol=1e-5)
        else:
            assert not torch.allclose(before[:, 6], after[:, 6])
        assert not torch.allclose(before[:, 7], after[:, 7])

    def test_no_token_sees_another_document(self, network: Network) -> None:
        """Documents that are kept apart are computed as if each stood alone."""
        tokens = torch.randint(0, VOCABULARY, (1, 12), generator=torch.Generator().manual_seed(2))
        documents = torch.tensor([[0] * 5 + [1] * 7])
        positions = torch.tensor([[*range(5), *range(7)]])
        with torch.no_grad():
            together = network(tokens, positions=positions, documents=documents)
            alone = torch.cat((network(tokens[:, :5]), network(tokens[:, 5:])), dim=1)
        torch.testing.assert_close(together, alone, atol=1e-4, rtol=1e-4)

    def test_what_it_says_of_its_parameters_is_so(self, network: Network) -> None:
        """Muon gets matrices, and no table is among them."""
        parameters = dict(network.named_parameters())
        matrices, tables = network.matrices(), network.tables()
        assert matrices
        assert all(matrix.ndim == 2 and matrix is parameters[name] for name, matrix in matrices.items())
        assert all(table is parameters[name] for name, table in tables.items())
        assert not matrices.keys() & tables.keys()

    def test_a_round_trip_through_hugging_face_changes_no_byte(self, network: Network, tmp_path: Path) -> None:
        """Where the family has such a form."""
        family: Family = FAMILY.load(self.family)
        if family.huggingface is None:
            pytest.skip("the family has no Hugging Face form")
        weights = dict(network.named_parameters())
        hf.write(tmp_path, network.spec, weights, dtype=torch.float32, extra={})
        # A plug-in may have the form of one of ours.
        assert replace(read_shape(tmp_path), family=network.spec.family) == network.spec
        again = hf.read_weights(tmp_path, network.spec)
        assert again.keys() == weights.keys()
        for name, weight in again.items():
            assert torch.equal(weight, weights[name]), name
