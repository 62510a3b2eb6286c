"""The loop: batches in, updates out; validation, checkpoints and reports at their cadence."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainwright.artifact.events import Events
from trainwright.artifact.shards import TokenDataset
from trainwright.core.errors import Interrupted, TrainingError
from trainwright.model.decoder import Decoder
from trainwright.model.evaluate_loss import SplitLoss, split_loss
from trainwright.model.losses import linear_cross_entropy
from trainwright.planner.flops import training_flops_per_token
from trainwright.planner.parameters import total_parameters
from trainwright.runtime.clock import PhaseClock
from trainwright.runtime.memory import LiveBytes, SavedBytes, measured_use, reset_peak, resident_bytes, tensor_bytes
from trainwright.spec.measures import MemoryUse, PhaseTimes
from trainwright.spec.recipe import Recipe
from trainwright.stages.train.checkpoints import Checkpoints, Progress
from trainwright.stages.train.loader import Windows
from trainwright.stages.train.metrics import Metrics, open_board
from trainwright.stages.train.optimizer import Optimizers
from trainwright.stages.train.schedule import rate
from trainwright.stages.train.settings import Settings
from trainwright.stages.train.step import TrainingStep
from trainwright.stages.train.stop import StopRequest


class Trainer:
    """One run, from where its checkpoints say it stands."""

    def __init__(
        self, model: Decoder, dataset: TokenDataset, checkpoints: Checkpoints, settings: Settings,
        *, recipe: Recipe, out: Path, events: Events,
    ) -> None:  # fmt: skip
        """Restore the newest good checkpoint, if there is one, and check that the data is long enough.

        Args:
            model: on its device, initialised.
            dataset: its ``train`` split is trained on, its ``validation`` split validated on where it has one.
            checkpoints: of this run.
            settings: what the recipe was resolved to.
            recipe: for what needs no resolving.
            out: where TensorBoard files go.
            events: for messages while restoring.
        """
        reset_peak(settings.device)
        self._baseline = resident_bytes() - tensor_bytes(model.parameters()) if settings.device.type == "cpu" else 0
        self.model, self.dataset, self.checkpoints, self.settings = model, dataset, checkpoints, settings
        self.recipe, self.out = recipe, out
        model.compute_dtype = settings.dtype
        model.recompute = recipe.train.recompute == "full"
        self.optimizers = Optimizers(model, recipe.train.optimizer)
        self.windows = Windows(
            dataset.splits["train"], sequence_tokens=settings.sequence_tokens,
            batch_sequences=settings.batch_sequences, seed=recipe.seed,
        )  # fmt: skip
        restored = checkpoints.restore(model, self.optimizers)
        self.progress = Progress() if restored is None else replace(restored, resumes=restored.resumes + 1)
        self.resumed_from = None if restored is None else restored.step
        self.clock = PhaseClock(settings.device)
        self.step = TrainingStep(
            model, self.optimizers, self.clock, micro_batch=settings.micro_batch,
            end_of_text=dataset.end_of_text_id if recipe.train.document_masking else None,
            clip_norm=recipe.train.clip_norm, compiled=settings.compiled, device=settings.device,
        )  # fmt: skip

    def run(self, events: Events) -> dict[str, Any]:
        """Train to the end; returns the summary.

        Raises:
            TrainingError: the loss is no longer a number.
            Interrupted: a signal asked to stop; the last step is in a checkpoint.
        """
        settings = self.settings
        board = open_board(
            self.out / "tensorboard",
            wanted=self.recipe.train.exec.tensorboard,
            first_step=self.progress.step,
            events=events,
        )
        flops_per_token = training_flops_per_token(settings.model, sequence_tokens=settings.sequence_tokens)
        metrics = Metrics(
            events, board, steps=settings.steps, batch_tokens=settings.batch_tokens,
            flops_per_token=flops_per_token, peak_flops_per_s=settings.peak_flops_per_s,
        )  # fmt: skip
        if self.resumed_from is not None:
            events.message(f"resuming from step {self.resumed_from} of {settings.steps}")
        self.clock.start()
        logits_bytes, activation_bytes = self._dry_run()
        with StopRequest() as stop:
            loss, validation = self._loop(metrics, stop, events)
        if board is not None:
            board.close()
        memory = self._memory(logits_bytes, activation_bytes)
        for name, size_bytes in memory.as_dict().items():
            events.emit("memory", name, size_bytes, unit="bytes", step=self.progress.step)
        return self._summary(loss, validation, memory, flops_per_token)

    def _loop(self, metrics: Metrics, stop: StopRequest, events: Events) -> tuple[float, SplitLoss | None]:
        settings, how = self.settings, self.recipe.train.exec
        loss, validation = math.nan, None
        saved_s, first = time.monotonic(), self.progress.step
        batches = self.windows.batches(first, settings.steps)
        for step in range(first, settings.steps):
            with self.clock.phase("data_wait"):
                tokens = next(batches)
            share = rate(
                step, steps=settings.steps, warmup_steps=settings.warmup_steps, section=self.recipe.train.schedule
            )
            metrics.add(self.step(tokens, share))
            self.progress = replace(self.progress, step=step + 1)
            done, last = step + 1, step + 1 == settings.steps
            events.progress("train", done, total=settings.steps, unit="steps")
            validate = last or done % self.recipe.train.validation.every_steps == 0
            due = 0 < how.checkpoint_every <= time.monotonic() - saved_s
            stopping = stop.requested is not None
            if last or validate or due or stopping or done % how.log_every_steps == 0:
                times = self.clock.stop()
                self.progress = self.progress.spent(times)
                loss = metrics.report(done, share * self.recipe.train.optimizer.lr, times)
                if not math.isfinite(loss):
                    raise self._not_finite(done, loss)
            if validate:
                validation = self._validate(metrics, done)
            if last or due or stopping:
                with self.clock.phase("checkpoint"):
                    path = self.checkpoints.save(self.model, self.optimizers, self.progress)
                saved_s = time.monotonic()
                if stopping and not last:
                    raise Interrupted(
                        f"stopped by {stop.requested} after step {done} of {settings.steps}; saved in {path.name}",
                        fix="run the same command to go on from there",
                    )
        self.progress = self.progress.spent(self.clock.stop())
        return loss, validation

    def _validate(self, metrics: Metrics, done: int) -> SplitLoss | None:
        split = self.dataset.splits.get("validation")
        if split is None:
            return None
        settings = self.settings
        with self.clock.phase("evaluate"):
            result = split_loss(
                self.model, split, sequence_tokens=settings.sequence_tokens,
                batch_sequences=settings.micro_batch,
                tokens=self.recipe.train.validation.tokens, document_masking=self.recipe.train.document_masking,
                device=settings.device,
            )  # fmt: skip
        metrics.metric("validation/loss", result.loss, step=done, unit="nats/token")
        metrics.metric("validation/bits_per_byte", result.bits_per_byte, step=done, unit="bits/byte")
        return result

    def _not_finite(self, step: int, loss: float) -> TrainingError:
        paths, optimizer = self.checkpoints.paths(), self.recipe.train.optimizer
        lower = f"train.optimizer.lr={optimizer.lr / 3:.2g}"
        if optimizer.name == "muon":
            lower += f" train.optimizer.muon_lr={optimizer.muon_lr / 3:.2g}"
        if paths:
            fix = (
                f"the last good checkpoint is {paths[-1]}; go on from its weights with lower rates: "
                f"trainwright run RECIPE model.init_from={paths[-1]} {lower}"
            )
        else:
            fix = f"no checkpoint yet; try lower rates: {lower}"
        return TrainingError(f"the loss or its gradient became {loss} by step {step}", where="train", fix=fix)

    def _dry_run(self) -> tuple[int, int]:
        """Run one micro batch before step 1: what cannot work fails now, and what is kept for backward is counted.

        Returns:
            Peak bytes of the loss's temporaries, and bytes saved for the backward pass.
        """
        tokens = self.windows.batch(self.progress.step)[: self.settings.micro_batch].to(self.settings.device)
        saved = SavedBytes(self.model.parameters())
        with saved.counting():
            hidden = self.step.hidden(tokens[:, :-1])
        part, targets = linear_cross_entropy(hidden.flatten(0, 1), self.model.head_weight, tokens[:, 1:].flatten())
        (part / targets).backward()
        leaf = hidden.detach().flatten(0, 1).requires_grad_()
        with LiveBytes() as live:
            linear_cross_entropy(leaf, self.model.head_weight, tokens[:, 1:].flatten())
        self.optimizers.zero_grad()
        return live.peak_bytes, saved.total_bytes

    def _memory(self, logits_bytes: int, activation_bytes: int) -> MemoryUse:
        weights = tensor_bytes(self.model.parameters())
        return measured_use(
            device=self.settings.device, baseline_bytes=self._baseline, weights=weights, gradients=weights,
            optimizer=tensor_bytes(tensor for _, tensor in self.optimizers.tensors()),
            activations=activation_bytes, logits=logits_bytes,
        )  # fmt: skip

    def _summary(
        self, loss: float, validation: SplitLoss | None, memory: MemoryUse, flops_per_token: float
    ) -> dict[str, Any]:
        settings = self.settings
        phases = PhaseTimes.from_mapping(self.progress.phases)
        steps_s = phases.total_s - phases.evaluate - phases.checkpoint
        speed = settings.steps * settings.batch_tokens / steps_s
        peak = settings.peak_flops_per_s
        return {
            "steps": settings.steps,
            "tokens": settings.steps * settings.batch_tokens,
            "parameters": total_parameters(settings.model),
            "precision": settings.precision,
            "train_loss": loss,
            "validation": validation and {
                "loss": validation.loss, "perplexity": validation.perplexity, "bits_per_byte": validation.bits_per_byte,
                "tokens": validation.tokens,
            },
            "phases": phases.as_dict(),
            "step_phases": phases.scaled(1 / settings.steps).as_dict() | {"evaluate": 0.0, "checkpoint": 0.0},
            "memory": memory.as_dict(),
            "tokens_per_s": speed,
            "flops_per_token": flops_per_token,
            "peak_flops_per_s": peak,
            "mfu": None if peak is None else speed * flops_per_token / peak,
            "execution": {
                "device": settings.device.type, "threads": settings.threads, "compiled": settings.compiled,
                "micro_batch": settings.micro_batch, "resumes": self.progress.resumes,
            },
        }  # fmt: skip
