"""Small, complete artefacts: a dataset of a few thousand tokens, a plan for the CPU."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from trainwright.artifact.model_folder import TOKENIZER
from trainwright.artifact.reading import PLAN
from trainwright.artifact.shard_writer import SplitWriter, write_dataset
from trainwright.artifact.shards import DOCUMENTS, NUMBERS
from trainwright.artifact.store import Artifact
from trainwright.artifact.workspace import Workspace
from trainwright.core.records import to_json
from trainwright.planner.plan.workload import adapters_of
from trainwright.spec.device import ClusterSpec, DeviceSpec, NodeSpec
from trainwright.spec.manifest import KINDS, Manifest
from trainwright.spec.measures import MemoryUse, PhaseTimes
from trainwright.spec.parts.targets import TargetScale
from trainwright.spec.plan import Estimate, Interval, Plan
from trainwright.spec.recipe import Recipe
from trainwright.spec.workload import ParallelPlan, Precision, Recompute, Workload

END_OF_TEXT = "<|endoftext|>"


def train_tokenizer(texts: Sequence[str], *, vocabulary: int) -> Tokenizer:
    """Returns a byte-level BPE tokenizer whose first id is the end of text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def make_artifact(
    root: Path, stage: str, files: Mapping[str, bytes], summary: Mapping[str, object] | None = None
) -> Artifact:
    """Returns an artefact with these files."""
    workspace = Workspace(root)
    partial = workspace.draft(stage, "0" * 64)
    for name, data in files.items():
        (partial / name).parent.mkdir(parents=True, exist_ok=True)
        (partial / name).write_bytes(data)
    return workspace.commit(partial, manifest_of(stage, summary))


def make_dataset(
    root: Path,
    splits: Mapping[str, Sequence[str]],
    *,
    vocabulary: int = 300,
    labels: Mapping[str, Sequence[str | tuple[str, ...]]] | None = None,
    numbers: Mapping[str, Sequence[float]] | None = None,
) -> Artifact:
    """Returns a dataset artefact of these documents; the tokenizer is trained on the ``train`` split.

    ``labels`` has for each split the label of each document, or the set of its labels as a tuple;
    ``numbers`` the number of each.
    """
    workspace = Workspace(root)
    partial = workspace.draft("data", "0" * 64)
    tokenizer = train_tokenizer(splits["train"], vocabulary=vocabulary)
    tokenizer.save(str(partial / TOKENIZER))
    entries, size = {}, tokenizer.get_vocab_size()
    each = sorted({label for split in (labels or {}).values() for label in split})
    sets = [label for label in each if isinstance(label, tuple)]
    names = sorted({name for label in sets for name in label}) if sets else [str(label) for label in each]
    end_id = tokenizer.token_to_id(END_OF_TEXT)
    assert end_id is not None
    for name, texts in splits.items():
        writer = SplitWriter(partial, name, vocabulary=size, end_of_text_id=end_id)
        which: Sequence[float | None] = [None] * len(texts)
        if labels is not None:
            which = [each.index(label) for label in labels[name]]
        elif numbers is not None:
            which = [float(number) for number in numbers[name]]
        for text, label in zip(texts, which, strict=True):
            writer.append(np.array(tokenizer.encode(text).ids), text_bytes=len(text.encode()), label=label)
        entries[name] = writer.close()
    write_dataset(
        partial,
        vocabulary=size,
        end_of_text=END_OF_TEXT,
        end_of_text_id=end_id,
        splits=entries,
        labels=names,
        label_sets=[[names.index(name) for name in label] for label in sets],
        scale=None if numbers is None else TargetScale.of(numbers["train"]),
        kind=DOCUMENTS if numbers is None else NUMBERS,
    )
    return workspace.commit(partial, manifest_of("data"))


def make_plan(
    root: Path,
    recipe: Recipe,
    *,
    vocabulary: int,
    steps: int = 1,
    micro_batch: int = 1,
    precision: Precision = "fp32",
    parallel: ParallelPlan | None = None,
    recompute: Recompute | None = None,
) -> Artifact:
    """Returns a plan artefact for one CPU that promises nothing but says what the trainer reads from it."""
    cpu = DeviceSpec(
        name="cpu",
        kind="cpu",
        vendor="any",
        memory_bytes=2**34,
        bytes_per_s=1e10,
        flops_per_s={"fp32": 1e11, "bf16": 1e11},
    )
    train = recipe.train
    plan = Plan(
        model=recipe.model_spec(vocabulary=vocabulary),
        parameters={},
        workload=Workload(
            sequence_tokens=train.sequence_tokens,
            batch_tokens=train.batch_tokens,
            ramp=train.sizes.ramp,
            steps=steps,
            precision=precision,
            optimizer=train.optimizer.counted,
            recompute=recompute or train.recompute,
            recompute_budget=train.recompute_budget,
            document_masking=recipe.masks_documents,
            moments=train.optimizer.reduced_moments,
            activation_offload=train.activation_offload,
            average_every=0 if train.ema is None else train.ema.every_steps,
            fused_attention=not recipe.model.dropout.attention,
            adapter=adapters_of(recipe, vocabulary, precision),
        ),
        cluster=ClusterSpec(node=NodeSpec(device=cpu, devices=1)),
        parallel=parallel or ParallelPlan(micro_batch_sequences=micro_batch, threads=1, deterministic=True),
        unmeasured=recipe.unmeasured,
        estimate=Estimate(
            fits=True,
            memory=MemoryUse(),
            memory_available_bytes=2**34,
            phases=PhaseTimes(),
            run_phases=PhaseTimes(),
            tokens_per_s=1.0,
            mfu=0.0,
            seconds=Interval(low=0, mid=0, high=0),
            usd=None,
            bottleneck="none",
        ),
    )
    return make_artifact(root, "plan", {PLAN: json.dumps(to_json(plan)).encode()}, {"precision": precision})


def manifest_of(stage: str, summary: Mapping[str, object] | None = None) -> Manifest:
    """Returns a manifest for ``Workspace.commit``, which lists the files."""
    return Manifest(
        kind=KINDS[stage],
        stage=stage,
        stage_version=1,
        fingerprint="0" * 64,
        identity={},
        inputs={},
        files=(),
        summary=summary or {},
    )
