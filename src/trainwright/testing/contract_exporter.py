"""The contract of an exporter: what every class in ``export.formats`` promises, as tests to inherit.

::

    class TestMine(ExporterContract):
        exporter = "my_package.formats:Mine"
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import torch

from trainwright.artifact.model_folder import SHAPE_FILE, TOKENIZER, WEIGHTS
from trainwright.artifact.store import Artifact
from trainwright.core.records import to_json
from trainwright.model.build import build_network
from trainwright.model.network import Network
from trainwright.model.weights import save_weights
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.export import EXPORTER, ExporterSection, ExportSection
from trainwright.stages.export.exporter import Exporter
from trainwright.testing.artifacts import make_artifact, train_tokenizer

VOCABULARY = 300


class ExporterContract:
    """A subclass names the exporter, and the families that have its form."""

    exporter: ClassVar[str]
    """A name of ours, or ``package.module:class``."""
    keys: ClassVar[dict[str, Any]] = {}
    """Keys beside the name, where it needs them."""
    families: ClassVar[tuple[str, ...]] = ("llama", "gpt2")

    def recipe(self) -> Recipe:
        """Returns what the network was made from."""
        return Recipe.model_validate(
            {
                "name": "tiny",
                "model": {"layers": 2, "width": 32, "heads": 2, "context_tokens": 24},
                "data": {"sources": [{"kind": "python-stdlib"}]},
                "train": {"sequence_tokens": 16, "batch_tokens": 16},
                "export": {"formats": [{"name": self.exporter} | self.keys]},
            }
        )

    def _network(self, recipe: Recipe, family: str) -> Network:
        section = recipe.model.model_copy(update={"family": family})
        network = build_network(section.spec(vocabulary=VOCABULARY))
        network.initialise(3)
        return network.eval().requires_grad_(False)

    def _trained(self, network: Network, root: Path) -> Artifact:
        """Returns the network's checkpoint."""
        tokenizer = train_tokenizer(["alpha beta gamma"], vocabulary=VOCABULARY)
        save_weights(root / "weights", dict(network.named_parameters()))
        files = {
            SHAPE_FILE: json.dumps(to_json(network.spec)).encode(),
            WEIGHTS: (root / "weights").read_bytes(),
            TOKENIZER: tokenizer.to_str().encode(),
        }
        return make_artifact(root, "train", files)

    def test_what_is_read_back_computes_the_same(self, tmp_path: Path) -> None:
        """From the files alone, for each family; and writing again over them changes no byte."""
        recipe = self.recipe()
        exporter = EXPORTER.bound(recipe.export.formats[0], ExporterSection)()
        assert isinstance(exporter, Exporter)
        tokens = torch.randint(0, VOCABULARY, (2, 16), generator=torch.Generator().manual_seed(0))
        for family in self.families:
            (tmp_path / family).mkdir()
            network = self._network(recipe, family)
            trained = self._trained(network, tmp_path / family)
            directory = tmp_path / family / "bundle"
            directory.mkdir()
            contents = []
            for _ in range(2):
                exporter.write(directory, network, recipe=recipe, trained=trained, dtype=torch.float32)
                contents.append({path.name: path.read_bytes() for path in directory.iterdir()})
            assert contents[0] == contents[1]
            assert contents[0], "nothing was written"
            with torch.no_grad():
                torch.testing.assert_close(
                    exporter.read(directory)(tokens), network.logits(network(tokens)), atol=1e-4, rtol=0
                )

    def test_its_keys_count_in_the_address(self) -> None:
        """All of them are written down, and read back from there."""
        written = self.recipe().identity("export")
        assert ExportSection.model_validate(written) == self.recipe().export
        assert not self.keys or written["formats"][0].items() >= self.keys.items()
