"""The loop: batches in, updates out; validation, checkpoints and reports at their cadence."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainwright.artifact.events import Events, restarts_in
from trainwright.artifact.shards import TokenDataset
from trainwright.core.plug_in import blaming
from trainwright.core.registry import load
from trainwright.model.network import Network
from trainwright.model.tasks.task import EvaluationOptions, Task
from trainwright.planner.counts.flops import training_flops_per_token, utilisation
from trainwright.planner.counts.parameters import total_parameters
from trainwright.runtime.clock import PhaseClock
from trainwright.runtime.memory import measured_use, reset_peak, resident_bytes, tensor_bytes
from trainwright.spec.measures import MemoryUse, PhaseTimes
from trainwright.spec.recipe import Recipe
from trainwright.spec.summary import TrainExecution, TrainSummary
from trainwright.stages.train.checkpoints import Checkpoints, State, TrainingProgress
from trainwright.stages.train.decisions import decide
from trainwright.stages.train.loader import prefetched
from trainwright.stages.train.metrics import TrainingMetrics, mean_loss, open_board
from trainwright.stages.train.optimizer import Optimizers
from trainwright.stages.train.schedule import load_schedule, rate
from trainwright.stages.train.settings import Settings
from trainwright.stages.train.step import Update
from trainwright.stages.train.stop import ERRORS, StopRequest
from trainwright.stages.train.world import ALONE, World

KEYED = "trainwright.model.dropout:KeyedBatches"
GATE = "trainwright.runtime.faults.gate:gate_of"
PASSING_OVER = "trainwright.stages.train.faults.passing_over:PassingOver"
ANSWER = "trainwright.stages.train.faults.policy:answer"


class Trainer:
    """One run, from where its checkpoints say it stands."""

    def __init__(
        self,
        task: Task,
        network: Network,
        dataset: TokenDataset,
        checkpoints: Checkpoints,
        settings: Settings,
        *,
        recipe: Recipe,
        out: Path,
        from_step: bool = False,
        world: World = ALONE,
    ) -> None:
        """Restore the newest good checkpoint, if there is one, and check that the data is long enough.

        Args:
            task: what is learnt.
            network: on its device, initialised.
            dataset: its ``train`` split is trained on, its ``validation`` split validated on where it has one.
            checkpoints: of this run.
            settings: what the recipe was resolved to.
            recipe: for what needs no resolving.
            out: where TensorBoard files go.
            from_step: the weights that it begins with are those of another step of the recipe.
            world: the processes that train together.
        """
        reset_peak(settings.device)
        self.world = world
        self._process_bytes = (
            resident_bytes() - tensor_bytes(world.local(network.parameters())) if settings.device.type == "cpu" else 0
        )
        self.task, self.network, self.dataset = task, network, dataset
        self.checkpoints, self.settings = checkpoints, settings
        self.recipe, self.out, self.from_step = recipe, out, from_step
        self.optimizers = Optimizers(network, recipe.train.optimizer, recipe.train.exec.update)
        self.batches = task.batches(dataset.splits["train"], batch_sequences=settings.batch_sequences, seed=recipe.seed)
        if network.spec.dropout:
            self.batches = load(KEYED, kind="dropout")(self.batches, recipe.seed)
        restored = checkpoints.restore(network, self.optimizers)
        self.progress = TrainingProgress() if restored is None else replace(restored, resumes=restored.resumes + 1)
        self.resumed_from = None if restored is None else restored.step
        self.clock = PhaseClock(settings.device)
        self.step = world.step(
            task,
            network,
            self.optimizers,
            self.clock,
            micro_batch=settings.micro_batch,
            clip_norm=recipe.train.clip_norm,
            compiled=settings.compiled,
        )
        self._every_batch = self.batches
        self.follow_progress()

    def follow_progress(self) -> None:
        """Goes on where the progress says: with the batches after it, and judging updates by those before it."""
        self.batches = self._every_batch
        if self.progress.passed_over:
            self.batches = load(PASSING_OVER, kind="data")(self._every_batch, self.progress.passed_over)
        section, device = self.recipe.train.faults, self.settings.device
        self.step.gate = load(GATE, kind="fault")(section, self.optimizers, device, self.progress.seen)

    def run(self, events: Events) -> TrainSummary:
        """Train to the end; returns the summary.

        Raises:
            TrainingError: a number cannot be right, and the recipe says that training stops.
            Interrupted: a signal asked to stop; the last step is in a checkpoint.
        """
        settings = self.settings
        board = open_board(
            self.out / "tensorboard",
            wanted=self.recipe.train.exec.tensorboard and self.world.leads,
            first_step=self.progress.step,
            events=events,
        )
        flops_per_token = training_flops_per_token(settings.model, sequence_tokens=settings.sequence_tokens)
        metrics = TrainingMetrics(
            events,
            board,
            unit=self.task.unit,
            steps=settings.steps,
            batch_tokens=settings.batch_tokens,
            flops_per_token=flops_per_token,
            peak_flops_per_s=settings.peak_flops_per_s,
            recent=self.progress.recent,
        )
        if self.resumed_from is not None:
            events.message(f"resuming from step {self.resumed_from} of {settings.steps}")
        self.clock.start()
        self.world.follow(lambda: (self.progress.step, *self.clock.running))
        logits_bytes, activation_bytes = self._dry_run()
        with StopRequest() as stop:
            validation = self._loop(metrics, stop, events)
        if board is not None:
            board.close()
        memory = self._memory(logits_bytes, activation_bytes)
        for name, size_bytes in memory.as_dict().items():
            events.emit("memory", name, size_bytes, unit="bytes", step=self.progress.step)
        return self._summary(validation, memory, flops_per_token)

    def _loop(self, metrics: TrainingMetrics, stop: StopRequest, events: Events) -> dict[str, Any] | None:
        validation = None
        if self.recipe.train.faults.goes_back and not self.checkpoints.paths():
            self.checkpoints.save(self.state()).wait()  # the start, where a first fault goes back to
        while self.progress.step < self.settings.steps:
            validation = self._until_rolled_back(metrics, stop, events)
        self.progress = self.progress.spent(self.clock.stop())
        return validation

    def _until_rolled_back(self, metrics: TrainingMetrics, stop: StopRequest, events: Events) -> dict[str, Any] | None:
        settings, train, validation = self.settings, self.recipe.train, None
        saved_s, first = time.monotonic(), self.progress.step
        for step, (update, share) in enumerate(self.updates(first, settings.steps), start=first):
            metrics.add(update)
            self.progress = replace(self.progress, step=step + 1)
            done = step + 1
            events.progress("train", done, total=settings.steps, unit="steps")
            since_s, signal = self.world.agreed(time.monotonic() - saved_s, stop.requested)
            decided = decide(train, done=done, steps=settings.steps, since_checkpoint_s=since_s, signal=signal)
            if self._rolled_back(metrics, events, first, reading=decided.report):
                return None
            if decided.report:
                times = self.clock.stop()
                rates = {name: share * peak for name, peak in self.optimizers.peak_rates.items()}
                metrics.report(done, rates, times)
                self.progress = replace(self.progress.spent(times), recent=metrics.recent)
            if decided.validate:
                validation = self._validate(metrics, done)
            if decided.checkpoint:
                with self.clock.phase("checkpoint"):
                    pending = self.checkpoints.save(self.state())
                    if decided.wait:
                        pending.wait()
                saved_s = time.monotonic()
                if decided.stop is not None:
                    raise ERRORS[decided.stop](
                        "stopped by {signal} after step {step} of {steps}; saved in {checkpoint}",
                        fix="run the same command to go on from there",
                        signal=decided.stop,
                        step=done,
                        steps=settings.steps,
                        checkpoint=pending.wait().name,
                    )
        return validation

    def _rolled_back(self, metrics: TrainingMetrics, events: Events, first: int, *, reading: bool) -> bool:
        """Answers faults that are known by now; returns whether the run went back to an earlier step."""
        assert self.step.gate is not None
        faults = self.step.gate.faults(reading=reading)
        return any(load(ANSWER, kind="fault")(self, fault, metrics, events, first=first) for fault in faults)

    def updates(self, first: int, last: int) -> Iterator[tuple[Update, float]]:
        """Yields each update that is made, with its share of the peak rate; one beyond the run has that of its end."""
        section, steps, warmup_steps = self.recipe.train.schedule, self.settings.steps, self.settings.warmup_steps
        rows = self.world.rows(self.settings.batch_sequences)
        schedule, batches = load_schedule(section), prefetched(self.batches, first, last, rows)
        for step in range(first, last):
            with self.clock.phase("data_wait"):
                batch = next(batches)
            share = rate(schedule, min(step, steps - 1), steps=steps, warmup_steps=warmup_steps, section=section)
            yield self.step(batch, share), share

    def state(self) -> State:
        """Returns all that a checkpoint holds."""
        progress = self.progress
        if self.recipe.train.faults.watches and self.step.gate is not None:
            progress = replace(progress, seen=self.step.gate.seen)
        return State(network=self.network, optimizers=self.optimizers, progress=progress)

    def _validate(self, metrics: TrainingMetrics, done: int) -> dict[str, Any] | None:
        split = self.dataset.splits.get("validation")
        if split is None:
            return None
        with self.clock.phase("evaluate"):
            options = EvaluationOptions(
                batch_sequences=self.settings.micro_batch, tokens=self.recipe.train.validation.tokens
            )
            result = self.world.evaluate(self.task, self.network, split, options)
        for name, metric in result.metrics.items():
            metrics.metric(f"validation/{name}", metric.value, step=done, unit=metric.unit)
        with blaming(self.recipe.task.name, where="task.name"):
            return result.as_json(unit=self.task.unit)

    def _dry_run(self) -> tuple[int, int]:
        """Run one micro batch before step 1: what cannot work fails now, and what is kept for backward is counted."""
        rows = self.world.rows(self.settings.batch_sequences)
        batch = self.batches.batch(self.progress.step, *(() if rows is None else (rows,)))
        micro = next(self.step.micro_batches(batch))
        caches = self.recipe.train.recompute != "none" and not self.settings.compiled
        here = self.world.local(self.network.parameters())
        return self.step.rehearse(self.step.on_device(micro), here, caches=caches)

    def _memory(self, logits_bytes: int, activation_bytes: int) -> MemoryUse:
        weights = tensor_bytes(self.world.local(self.network.parameters()))
        states = self.world.local(tensor for _, tensor in self.optimizers.tensors())
        return measured_use(
            device=self.settings.device,
            weights=weights,
            gradients=weights,
            optimizer=tensor_bytes(states),
            activations=activation_bytes,
            logits=logits_bytes,
        )

    def _summary(self, validation: dict[str, Any] | None, memory: MemoryUse, flops_per_token: float) -> TrainSummary:
        settings = self.settings
        phases = PhaseTimes.from_mapping(self.progress.phases)
        steps_s = phases.total_s - phases.evaluate - phases.checkpoint
        speed = settings.steps * settings.batch_tokens / steps_s
        return TrainSummary(
            steps=settings.steps,
            tokens=settings.steps * settings.batch_tokens,
            passes=settings.passes,
            parameters=total_parameters(settings.model),
            precision=settings.precision,
            train_loss=mean_loss(self.progress.recent),
            validation=validation,
            phases=phases,
            step_phases=replace(phases.scaled(1 / settings.steps), evaluate=0.0, checkpoint=0.0),
            memory=memory,
            process_bytes=self._process_bytes,
            tokens_per_s=speed,
            flops_per_token=flops_per_token,
            peak_flops_per_s=settings.peak_flops_per_s,
            mfu=utilisation(speed * flops_per_token, settings.peak_flops_per_s),
            execution=TrainExecution(
                device=settings.device.type,
                threads=settings.threads,
                compiled=settings.compiled,
                micro_batch=settings.micro_batch,
                resumes=self.progress.resumes,
                restarts=restarts_in(self.out / "events.jsonl"),
                deterministic=settings.deterministic,
            ),
        )
