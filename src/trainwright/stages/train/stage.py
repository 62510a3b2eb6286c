"""The stage: verify the dataset, build or restore the model, train, write the model bundle and the summary."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainwright.artifact.events import Events
from trainwright.artifact.shards import TokenDataset
from trainwright.artifact.stage import StageResult
from trainwright.artifact.store import Artifact, write_atomically
from trainwright.core.errors import RecipeError
from trainwright.core.records import from_json
from trainwright.core.units import parse_duration
from trainwright.model.bundle import load_bundle
from trainwright.model.decoder import Decoder
from trainwright.planner.parameters import total_parameters
from trainwright.runtime.device import DTYPES, choose
from trainwright.spec.model import ModelSpec
from trainwright.spec.plan import Plan
from trainwright.spec.recipe import Recipe
from trainwright.stages.train.checkpoints import Checkpoints, load_weights, write_bundle
from trainwright.stages.train.metrics import forget_after
from trainwright.stages.train.settings import Settings, torch_settings
from trainwright.stages.train.trainer import Trainer


def run(recipe: Recipe, inputs: Mapping[str, Artifact], out: Path, events: Events) -> StageResult:
    """Train as the recipe says, from the start or from the last checkpoint in ``out``.

    Raises:
        DataError: a damaged shard, or a split shorter than a sequence.
        TrainingError: the loss is no longer a number, or no checkpoint can be used.
        Interrupted: a signal asked to stop; the last step is in a checkpoint.
    """
    inputs["plan"].verify()
    plan = from_json(Plan, json.loads(inputs["plan"].file("plan.json").read_text()), where=str(inputs["plan"].path))
    inputs["data"].verify()
    dataset = TokenDataset.open(inputs["data"].path)
    settings = resolve(recipe, plan, dataset)
    with torch_settings(settings):
        model = build_model(recipe, settings.model, dataset.tokenizer_path)
        model.to(settings.device)
        checkpoints = Checkpoints(
            out / "checkpoints",
            keep=recipe.train.exec.keep_checkpoints,
            tokenizer=dataset.tokenizer_path,
            events=events,
        )
        with Events(None, run=recipe.name) as silent:
            silent.listeners = events.listeners
            trainer = Trainer(model, dataset, checkpoints, settings, recipe=recipe, out=out, events=silent)
            forget_after(out / "events.jsonl", trainer.progress.step)
            with Events(out / "events.jsonl", run=recipe.name, listeners=events.listeners) as own:
                summary = trainer.run(own)
    write_bundle(out, model, dataset.tokenizer_path)
    write_atomically(out / "summary.json", json.dumps(summary, indent=1, allow_nan=False).encode() + b"\n")
    return StageResult(summary=_headline(summary), execution=summary["execution"])


def resolve(recipe: Recipe, plan: Plan, dataset: TokenDataset) -> Settings:
    """What is computed and how, with every ``auto`` replaced by the plan's choice.

    Raises:
        RecipeError: the run is shorter than one update.
    """
    section, how = recipe.train, recipe.train.exec
    model = recipe.model.spec(vocabulary=dataset.vocabulary)
    tokens = parse_duration(section.duration).tokens(
        batch_tokens=section.batch_tokens,
        parameters=total_parameters(model),
        epoch_tokens=dataset.splits["train"].tokens,
    )
    steps = round(tokens / section.batch_tokens)
    if steps < 1:
        raise RecipeError(
            "the run is shorter than one update", where="train.duration", seen=f"{tokens} tokens",
            expected=f"at least train.batch_tokens ({section.batch_tokens})",
        )  # fmt: skip
    warmup = parse_duration(section.schedule.warmup).tokens(
        batch_tokens=section.batch_tokens,
        parameters=total_parameters(model),
        epoch_tokens=dataset.splits["train"].tokens,
    )
    precision = plan.workload.precision
    device = choose(how.device)
    return Settings(
        model=model,
        steps=steps,
        warmup_steps=min(steps, round(warmup / section.batch_tokens)),
        sequence_tokens=section.sequence_tokens,
        batch_sequences=section.batch_tokens // section.sequence_tokens,
        micro_batch=plan.parallel.micro_batch_sequences if how.micro_batch == "auto" else how.micro_batch,
        precision=precision,
        dtype=DTYPES[precision],
        compiled=plan.parallel.compile if how.compile == "auto" else how.compile,
        threads=plan.parallel.threads if how.threads == "auto" else how.threads,
        device=device.torch_device,
        peak_flops_per_s=plan.cluster.device.flops_per_s.get(precision),
    )


def build_model(recipe: Recipe, spec: ModelSpec, tokenizer: Path) -> Decoder:
    """A freshly initialised model, or one with the weights that ``model.init_from`` names.

    Raises:
        RecipeError: those weights belong to another shape or another tokenizer.
    """
    model = Decoder(spec)
    if recipe.model.init_from is None:
        model.initialise(recipe.seed)
        return model
    source, source_tokenizer = load_bundle(Path(recipe.model.init_from))
    if source.spec != spec:
        differing = [name for name in spec.__dataclass_fields__ if getattr(spec, name) != getattr(source.spec, name)]
        name = differing[0]
        raise RecipeError(
            f"the pretrained model has another {name}", where="model.init_from", seen=getattr(source.spec, name),
            expected=str(getattr(spec, name)), fix="write the pretrained model's shape into the recipe's model section",
        )  # fmt: skip
    if json.loads(source_tokenizer.to_str())["model"] != json.loads(tokenizer.read_text())["model"]:
        raise RecipeError(
            "the pretrained model has another tokenizer", where="model.init_from", seen=recipe.model.init_from,
            fix="set data.tokenizer.kind=pretrained and data.tokenizer.path to its tokenizer.json",
        )  # fmt: skip
    load_weights(model, dict(source.named_parameters()))
    return model


def _headline(summary: Mapping[str, Any]) -> dict[str, Any]:
    validation = summary["validation"] or {}
    return {
        "steps": summary["steps"],
        "tokens": summary["tokens"],
        "parameters": summary["parameters"],
        "precision": summary["precision"],
        "train_loss": summary["train_loss"],
        "validation_loss": validation.get("loss"),
        "bits_per_byte": validation.get("bits_per_byte"),
        "seconds": math.fsum(summary["phases"].values()),
        "tokens_per_s": summary["tokens_per_s"],
        "mfu": summary["mfu"],
    }
