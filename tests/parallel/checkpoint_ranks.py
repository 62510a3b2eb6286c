"""The program of a rank: writes a checkpoint in each layout, and reads each one back in every layout."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from fixtures.meeting import gloo, mesh_for
from fixtures.tiny_models import spec, tokenizer
from trainwright.artifact.checkpoint.reader import CheckpointReader
from trainwright.artifact.events import Events
from trainwright.core.errors import TrainwrightError
from trainwright.model.build import build_network
from trainwright.runtime.norms import local
from trainwright.spec.model import ModelSpec
from trainwright.spec.parts.experts import Experts
from trainwright.spec.sections.updates.optimizer import AdamWSection, MuonSection
from trainwright.spec.sections.weights.average import EmaSection
from trainwright.spec.workload import ParallelPlan
from trainwright.stages.train.checkpoints import Checkpoints, State, TrainingProgress, whole_on_cpu
from trainwright.stages.train.optimizer import Optimizers
from trainwright.stages.train.ranks.world import world_of
from trainwright.stages.train.saving import writing
from trainwright.stages.train.weights.average import AveragedOptimizers
from trainwright.stages.train.world import ALONE, World

RANKS = 4
LAYOUTS: Mapping[str, Mapping[str, object]] = {
    "one process": {},
    "copies": {"dp_replicate": 4},
    "shards": {"dp_shard": 4, "zero_stage": 3},
    "copies of shards": {"dp_replicate": 2, "dp_shard": 2, "zero_stage": 1},
    "stages": {"pp": 4},
    "stages of shards": {"pp": 2, "dp_shard": 2, "zero_stage": 1},
    "matrices and sequences": {"tp": 2, "cp": 2},
}
OF_EXPERTS: Mapping[str, Mapping[str, object]] = {
    "one process": {},
    "shards": {"dp_shard": 4, "zero_stage": 3},
    "experts": {"dp_shard": 2, "dp_replicate": 2, "ep": 2, "zero_stage": 3},
    "shards of experts": {"dp_shard": 4, "ep": 2, "zero_stage": 1},
    "copies of experts": {"dp_replicate": 4, "ep": 2},
    "stages of experts": {"pp": 2, "dp_replicate": 2, "ep": 2},
}
FAMILIES = {"llama": AdamWSection(lr=1e-2), "gpt2": MuonSection(lr=1e-2), "mixture": AdamWSection(lr=1e-2)}
"""One has an untied head, one a tied one, which lies on two stages; 5 rows are not divided by 4 ranks."""
LAYOUTS_OF = {"llama": LAYOUTS, "gpt2": LAYOUTS, "mixture": OF_EXPERTS}
EXPERTS = Experts(count=2, active=2, ffn_width=24, bias=True)
"""Fewer than four ranks, which then share the rows of each."""


def shape_of(family: str) -> ModelSpec:
    """The tiny shape of a family, or of a llama with experts."""
    sizes: dict[str, object] = {"layers": 4, "vocabulary": 323}
    return spec("llama", **sizes, experts=EXPERTS) if family == "mixture" else spec(family, **sizes)


class Training:
    """A network with an optimizer's state and an average of weights in it, of numbers that the seed decides."""

    def __init__(self, family: str, layout: Mapping[str, object], folder: Path, *, seed: int) -> None:
        self.world: World = ALONE
        if layout:
            self.world = world_of(mesh_for(ParallelPlan(**layout)), batch_sequences=4)
        self.network = build_network(shape_of(family), dtype=torch.float32)
        self.network.initialise(seed)
        self.world.share(self.network, compiled=False)
        optimizers = Optimizers(self.network, FAMILIES[family])
        self.optimizers = AveragedOptimizers(self.network, optimizers, EmaSection(decay=0.5), 0)
        for parameter in self.network.parameters():
            parameter.grad = torch.full_like(parameter, 0.1) + parameter.detach()
        self.optimizers.step(1.0)
        self.checkpoints = self.in_folder(folder)

    def in_folder(self, folder: Path) -> Checkpoints:
        """The checkpoints of a folder, as this training writes and reads them."""
        tokenizer = folder.parent.parent / "tokenizer.json"
        return Checkpoints(folder, keep=9, tokenizer=tokenizer, events=Events(None, run="t"), world=self.world)

    @torch.no_grad()
    def forget(self) -> None:
        """Puts NaN, which equals nothing, where weights and states are."""
        for _, tensor in (*self.network.named_parameters(), *self.optimizers.tensors()):
            if tensor.is_floating_point():
                local(tensor).fill_(torch.nan)

    def save(self, step: int) -> None:
        """Begins to write a checkpoint."""
        progress = TrainingProgress(step=step)
        self.checkpoints.save(State(network=self.network, optimizers=self.optimizers, progress=progress))

    def whole(self) -> dict[str, Tensor]:
        """Every weight and state, on the first rank."""
        weights = whole_on_cpu(self.network.named_parameters(), self.world)
        return weights | whole_on_cpu(self.optimizers.tensors(), self.world)


def sources(family: str, reader: str, *, every: bool) -> list[str]:
    """What a layout reads here: what every other wrote; of most families one process and the layout beside it."""
    names = list(LAYOUTS_OF[family])
    beside = names[names.index(reader) - 1]
    return names if every or family == "llama" else list(dict.fromkeys((names[0], beside)))


def pairs(folder: Path, family: str, rank: int, *, every: bool) -> Iterator[tuple[str, bool]]:
    """Yields whether each layout reads what others have written, to the last bit."""
    written: dict[str, dict[str, Tensor]] = {}
    layouts = LAYOUTS_OF[family]
    for name, layout in layouts.items():
        if layout or rank == 0:
            training = Training(family, layout, folder / family / name, seed=1)
            training.save(1)
            written[name] = {key: tensor.clone() for key, tensor in training.whole().items()}
            training.checkpoints.paths()
        dist.barrier()
    for name, layout in layouts.items():
        training = Training(family, layout, folder / family / name, seed=2) if layout or rank == 0 else None
        for source in sources(family, name, every=every):
            if training is not None:
                training.forget()
                checkpoints = training.in_folder(folder / family / source)
                progress = checkpoints.restore(training.network, training.optimizers)
                after = training.whole()
                if rank == 0:
                    assert progress is not None and progress.step == 1
                    yield f"{family}: {source} -> {name}", same_bits(after, written[source])
            dist.barrier()


def same_bits(some: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> bool:
    """Whether names and values are the same."""
    return some.keys() == others.keys() and all(torch.equal(some[name], others[name]) for name in some)


def facts(folder: Path, rank: int) -> dict[str, object]:
    """What the files of a layout say, and what happens where one rank cannot write or a file is damaged."""
    training = Training("llama", LAYOUTS["shards"], folder / "facts" / "shards", seed=1)
    for step in (1, 2):
        training.save(step)
    paths = training.checkpoints.paths()
    found: dict[str, object] = {}
    if rank == 0:
        index = CheckpointReader(paths[0]).index
        found["sizes"] = [file.size_bytes for name, file in index.files.items() if name.startswith("model-")]
        spoiled = paths[1] / "model-00003-of-00004.safetensors"
        data = spoiled.read_bytes()
        spoiled.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    dist.barrier()
    progress = training.checkpoints.restore(training.network, training.optimizers)
    found["passed over"] = progress is not None and progress.step == 1
    if rank == 2:
        writing.write_tensors = _refused
    training.save(3)
    try:
        training.checkpoints.paths()
    except TrainwrightError as error:
        found["refused"] = str(error)
    return found


def _refused(*_: object) -> None:
    raise PermissionError(13, "Permission denied", "there")


def main(rank: int, ranks: int, folder: str, every: bool) -> None:
    """Runs as one rank, with every pair of layouts in every family or with some; writes ``results-<rank>.json``."""
    torch.set_num_threads(1)
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = "OFF"
    if rank == 0:
        Path(folder, "tokenizer.json").write_text(tokenizer().to_str())
    with gloo(rank, ranks, folder):
        dist.barrier()
        results: dict[str, object] = {"same": {}, "facts": {}}
        read = (pairs(Path(folder), family, rank, every=every) for family in FAMILIES)
        results["same"] = dict(chain.from_iterable(read))
        results["facts"] = facts(Path(folder), rank)
        Path(folder, f"results-{rank}.json").write_text(json.dumps(results))
