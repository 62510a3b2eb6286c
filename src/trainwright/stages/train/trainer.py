"""The loop: batches in, updates out; validation, checkpoints and reports at their cadence."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwright.artifact.events import Events
from trainwright.artifact.shards import TokenDataset
from trainwright.core.plug_in import blaming
from trainwright.core.registry import load
from trainwright.model.network import Network
from trainwright.model.tasks.task import Batches, Evaluation, EvaluationOptions, Task, batch_of
from trainwright.planner.counts.flops import training_flops_per_token
from trainwright.runtime.device import pins
from trainwright.runtime.garbage import collected_by_hand
from trainwright.runtime.memory import measured_use, reset_peak, resident_bytes, tensor_bytes
from trainwright.runtime.timing.clock import PhaseClock
from trainwright.spec.measures import MemoryUse, PhaseTimes
from trainwright.spec.recipe import Recipe
from trainwright.spec.summary import EarlyStopping, Goodput, RankUse, TrainSummary
from trainwright.stages.train.checkpoints import Checkpoints, State, TrainingProgress
from trainwright.stages.train.decisions import Decisions, decide
from trainwright.stages.train.loader import prefetched
from trainwright.stages.train.metrics import TrainingMetrics, finite, summary_of
from trainwright.stages.train.optimizer import Optimizers
from trainwright.stages.train.schedule import load_schedule, rate
from trainwright.stages.train.settings import Settings
from trainwright.stages.train.step import Update
from trainwright.stages.train.stop import TIME_LIMIT, StopRequest, stopped, time_limit
from trainwright.stages.train.world import ALONE, World

if TYPE_CHECKING:
    from trainwright.stages.train.observe.board import Board

KEYED = "trainwright.stages.train.batches.keyed:KeyedBatches"
ON_HOST = "trainwright.stages.train.memory.host_optimizer:host_optimizers"
GATE = "trainwright.runtime.faults.gate:gate_of"
SCALED = "trainwright.model.precision.loss_scale:scaled"
RAMPED = "trainwright.stages.train.batches.ramped:Ramped"
PASSING_OVER = "trainwright.stages.train.faults.passing_over:PassingOver"
POLICY = "trainwright.stages.train.faults.policy"
BROKEN = "trainwright.stages.train.faults.weights:not_finite"
STOPPING = "trainwright.stages.train.weights.stopping"
BUDGET = "trainwright.runtime.timing.recompilation:recompilation_limited"
BOARD = "trainwright.stages.train.observe.board:open_board"
AVERAGED = "trainwright.stages.train.weights.average:averaged"


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
        self.process_bytes = (
            resident_bytes() - tensor_bytes(world.local(network.held())) if settings.device.type == "cpu" else 0
        )
        self.task, self.network, self.dataset = task, network, dataset
        self.checkpoints, self.settings = checkpoints, settings
        self.recipe, self.out, self.from_step = recipe, out, from_step
        make = load(ON_HOST, kind="memory") if settings.offload else Optimizers
        self.optimizers: Optimizers = make(network, recipe.train.optimizer, recipe.train.exec.update)
        if recipe.train.averages:
            how = recipe.train, settings.average_from
            self.optimizers = load(AVERAGED, kind="average")(network, self.optimizers, *how)
        restored = checkpoints.restore(network, self.optimizers)
        self.progress = TrainingProgress() if restored is None else replace(restored, resumes=restored.resumes + 1)
        self._restored, self._began_s, self.copy_bytes = self.progress, 0.0, 0
        self.mended_from: set[str] = set()  # checkpoints that it went back to because weights were no numbers
        self.resumed_from = None if restored is None else restored.step
        self.early_stopping: EarlyStopping | None = None
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
        self._every_batch = self._batches()
        self.follow_progress()

    def _batches(self) -> Batches:
        """Returns the batches of the run, in the order of the data."""
        settings, seed, split = self.settings, self.recipe.seed, self.dataset.splits["train"]
        batches = self.task.batches(split, batch_sequences=settings.batch_sequences, seed=seed)
        if self.network.spec.dropout or self.network.dropouts is not None:
            batches = load(KEYED, kind="dropout")(batches, seed)
        if settings.sizes.ramp:
            batches = load(RAMPED, kind="data")(batches, settings.sizes, settings.sequence_tokens)
        return batches

    def follow_progress(self) -> None:
        """Goes on where the progress says: with the batches after it, and judging updates by those before it."""
        self.batches: Batches = self._every_batch
        if self.progress.step < self._restored.step:
            self._restored = self.progress  # it makes steps again that an earlier session made
        if self.progress.passed_over:
            self.batches = load(PASSING_OVER, kind="data")(self._every_batch, self.progress.passed_over)
        train, device, at = self.recipe.train, self.settings.device, self.progress
        if self.settings.precision == "fp16":
            sections, members = (train.loss_scale, train.faults), self.optimizers.members
            kept = at.loss_scale, at.steady_updates
            both = load(SCALED, kind="precision")(sections, members, device, kept=kept, seen=at.seen)
            self.step.scale, self.step.gate = both
        else:
            self.step.gate = load(GATE, kind="fault")(train.faults, self.optimizers, device, at.seen)

    def run(self, events: Events, *, began_s: float, launched_s: float) -> TrainSummary:
        """Train to the end; returns the summary.

        Args:
            events: where to report.
            began_s: when work on this run began by ``time.monotonic``, had it never been interrupted.
            launched_s: when the command began to train, by that clock; its time limit counts from there.

        Raises:
            TrainingError: a number cannot be right, and the recipe says that training stops; most updates were not
                made; the result is no number.
            Interrupted: a signal asked to stop; the last step is in a checkpoint.
        """
        settings, self._began_s = self.settings, began_s
        asked_s = self.recipe.train.exec.time_limit
        limit = time_limit(asked_s, launched_s, lambda: self.checkpoints.longest_write_s)
        board: Board | None = None
        if self.recipe.train.exec.tensorboard and self.world.leads:
            board = load(BOARD, kind="writer")(self.out / "tensorboard", first_step=self.progress.step, events=events)
        flops_per_token = training_flops_per_token(settings.model, sequence_tokens=settings.sequence_tokens)
        metrics = TrainingMetrics(
            events,
            board,
            unit=f"{self.recipe.task.kind.loss_unit}/{self.task.unit}",
            counted=self.recipe.counted,
            flops_per_token=flops_per_token,
            peak_flops_per_s=settings.peak_flops_per_s,
            recent=self.progress.recent,
        )
        if self.resumed_from is not None:
            events.message(f"resuming from step {self.resumed_from} of {settings.steps}")
        self.clock.start()
        self.world.follow(lambda: (self.progress.step, *self.clock.running))
        with self.world.counted(self.network, self.clock, compiled=self._compiles), self._budget(events):
            logits_bytes, activation_bytes = self._rehearse()
            with StopRequest() as stop, collected_by_hand() as collect:
                validation = self._loop(metrics, stop, events, collect, limit)
        if board is not None:
            board.close()
        if not self.progress.recent or 2 * self.progress.faults > self.progress.step:
            raise load(f"{POLICY}:too_few_made", kind="fault")(self)
        memory = self._memory(logits_bytes, activation_bytes)
        for name, size_bytes in memory.as_dict().items():
            events.emit("memory", name, size_bytes, unit="bytes", step=self.progress.step)
        return summary_of(self, validation, memory, flops_per_token=flops_per_token)

    @property
    def _compiles(self) -> bool:
        """Whether anything is compiled: the network, or its attention alone."""
        return self.settings.compiled or self.network.kernels.attention == "flex"

    def _budget(self, events: Events) -> AbstractContextManager[None]:
        """Returns a context that limits how often code is compiled."""
        if not self._compiles:
            return nullcontext()
        limited: AbstractContextManager[None] = load(BUDGET, kind="compiler")(
            self.recipe.train.exec.recompile_limit, events, self.progress.step
        )
        return limited

    def _loop(
        self, metrics: TrainingMetrics, stop: StopRequest, events: Events, collect: Callable[[int], None], limit: Any
    ) -> dict[str, Any] | None:
        validation = None
        if self.recipe.train.faults.goes_back and not self.checkpoints.paths():
            self.checkpoints.save(self.state()).wait()  # the start, where a first fault goes back to
        while self.progress.step < self.settings.steps and not self.progress.stopped_early:
            validation = self._until_rolled_back(metrics, stop, events, collect, limit)
        if self.recipe.train.early_stopping is not None:
            validation = load(f"{STOPPING}:concluded", kind="stopping")(self, validation, events)
        if validation is None:  # an earlier session made the last step
            validation = self._validate(metrics, self.progress.step)
        with self.clock.phase("checkpoint"):
            self.checkpoints.finish()
        self.progress = self.progress.spent(self.clock.stop())
        return validation

    def _until_rolled_back(
        self, metrics: TrainingMetrics, stop: StopRequest, events: Events, collect: Callable[[int], None], limit: Any
    ) -> dict[str, Any] | None:
        settings, train, validation = self.settings, self.recipe.train, None
        saved_s, first = time.monotonic(), self.progress.step
        saved = True  # what it begins from, or went back to
        for step, (update, share) in enumerate(self.updates(first, settings.steps), start=first):
            metrics.add(update, settings.tokens_at(step, self.progress.passed_over))
            self.progress = replace(self.progress, step=step + 1)
            done = step + 1
            collect(done)
            asked = TIME_LIMIT if limit is not None and limit.over() else stop.requested
            since_s, cause = self.world.agreed(time.monotonic() - saved_s, asked, saved=saved)
            decided = decide(train, done=done, steps=settings.steps, since_checkpoint_s=since_s, cause=cause)
            if self._rolled_back(metrics, events, first, decided):
                return None
            if decided.report:
                times = self.clock.stop()
                metrics.report(done, self._rates(share), times, tokens=self.tokens)
                self.progress = replace(self.progress.spent(times), recent=metrics.recent)
                metrics.metric("train/goodput", self.goodput().share, step=done)
                self.checkpoints.tell()
                self.world.compare(done, times, metrics)
            events.progress("train", done, total=settings.steps, unit="steps")
            measured: dict[str, float] = {}
            if decided.validate:
                validation = self._validate(metrics, done)
                measured = finite(validation)
                if train.early_stopping is not None:
                    decided = load(f"{STOPPING}:judged", kind="stopping")(self, decided, validation, events)
            saved = decided.checkpoint or self.checkpoints.wanted(measured)
            if saved:
                self._save(decided, measured)
                saved_s = time.monotonic()
            if self.progress.stopped_early:
                break
        return validation

    def _save(self, decided: Decisions, measured: Mapping[str, float]) -> None:
        """Saves this step, with what was measured at it, and stops where that was decided."""
        self.copy_bytes = self.checkpoints.copy_bytes
        with self.clock.phase("checkpoint"):
            pending = self.checkpoints.save(replace(self.state(), metrics=measured))
            if decided.wait:
                pending.wait()
        if decided.stop is not None:
            raise stopped(decided.stop, self.progress.step, self.settings.steps, checkpoint=pending.wait().name)

    def _rates(self, share: float) -> dict[str, float]:
        """Returns what an update was made with, by metric."""
        rates = {name: share * peak for name, peak in self.optimizers.peak_rates.items()}
        if self.step.scale is not None:
            rates["train/loss_scale"] = float(self.step.scale.factor)
        if self.settings.sizes.ramp:
            rates["train/batch_tokens"] = self.settings.tokens_at(self.progress.step - 1, self.progress.passed_over)
        return rates

    def _rolled_back(self, metrics: TrainingMetrics, events: Events, first: int, decided: Decisions) -> bool:
        """Answers faults that are known by now; returns whether the run went back to an earlier step."""
        assert self.step.gate is not None
        faults = self.step.gate.faults(reading=decided.report)
        if any(load(f"{POLICY}:answer", kind="fault")(self, fault, metrics, events, first=first) for fault in faults):
            return True
        if not (decided.validate or decided.checkpoint):
            return False
        with self.clock.phase("checkpoint"):
            broken = load(BROKEN, kind="fault")(self)
        return bool(broken) and load(f"{POLICY}:answer_weights", kind="fault")(self, broken, metrics, events)

    def updates(self, first: int, last: int) -> Iterator[tuple[Update, float]]:
        """Yields each update that is made, with its share of the peak rate; one beyond the run has that of its end."""
        section, steps, warmup_steps = self.recipe.train.schedule, self.settings.steps, self.settings.warmup_steps
        batches = prefetched(self.batches, first, last, self.rows, pin=pins(self.settings.device.type))
        schedule = load_schedule(section)
        for step in range(first, last):
            with self.clock.phase("data_wait"):
                batch = next(batches)
            share = rate(schedule, min(step, steps - 1), steps=steps, warmup_steps=warmup_steps, section=section)
            share *= self.recipe.train.rate_factor
            self.prepare(step)
            yield self.step(batch, share), share

    def rows(self, step: int) -> range | None:
        """Returns which sequences of a step's batch this process reads; None: all of them."""
        return self.world.rows(self.settings.sequences(step, self.progress.passed_over))

    def prepare(self, step: int) -> None:
        """Prepares for a step's batch, which may be of another size than the one before."""
        self.step.resize(self.settings.sequences(step, self.progress.passed_over))

    @property
    def tokens(self) -> int:
        """Returns the tokens of all steps so far."""
        return self.settings.tokens(self.progress.step, self.progress.passed_over)

    def state(self) -> State:
        """Returns all that a checkpoint holds."""
        progress = self.progress
        if self.recipe.train.faults.watches and self.step.gate is not None:
            progress = replace(progress, seen=self.step.gate.seen)
        if self.step.scale is not None:
            progress = replace(progress, **self.step.scale.kept())
        return State(network=self.network, optimizers=self.optimizers, progress=progress)

    def evaluation(self) -> Evaluation | None:
        """Returns what the result's weights get on the validation split, where there is one; all processes must ask."""
        split = self.dataset.splits.get("validation")
        if split is None:
            return None
        with self.clock.phase("evaluate"):
            options = EvaluationOptions(
                batch_sequences=self.settings.micro_batch, tokens=self.recipe.train.validation.tokens
            )
            with self.optimizers.result():
                return self.world.evaluate(self.task, self.network, split, options)

    def _validate(self, metrics: TrainingMetrics, done: int) -> dict[str, Any] | None:
        result = self.evaluation()
        if result is None:
            return None
        for name, metric in result.metrics.items():
            metrics.metric(f"validation/{name}", metric.value, step=done, unit=metric.unit)
        with blaming(self.recipe.task.name, where="task.name"):
            measured = result.as_json(unit=self.task.unit)
        if done == self.settings.steps and measured["metrics"].get("loss", {"value": 0})["value"] is None:
            raise load(f"{POLICY}:no_measure", kind="fault")(self)
        return measured

    def _rehearse(self) -> tuple[int, int]:
        """Run one micro batch of a full batch before step 1: what cannot work fails now, what is kept is counted."""
        step = max(self.progress.step, sum(part.steps for part in self.settings.sizes.ramp))
        self.prepare(step)
        batch = batch_of(self.batches, step, self.rows(step))
        micro = next(self.step.micro_batches(batch))
        caches = self.settings.recompute != "none" and not self.settings.compiled
        here = self.world.local(self.network.held())
        return self.step.rehearse(self.step.on_device(micro), here, caches=caches)

    def _memory(self, logits_bytes: int, activation_bytes: int) -> MemoryUse:
        weights = tensor_bytes(self.world.local(self.network.held()))
        trained = (each for each in self.network.parameters() if each.requires_grad)
        states = self.world.local(self.optimizers.on_device())
        return measured_use(
            device=self.settings.device,
            weights=weights,
            gradients=tensor_bytes(self.world.local(trained)),
            optimizer=tensor_bytes(states),
            activations=activation_bytes,
            logits=logits_bytes,
            beside=self.copy_bytes if self.settings.device.type == "cpu" else 0,
        )

    def goodput(self) -> Goodput:
        """Returns the share of the time since the run began that went into steps."""
        spent, wall_s = PhaseTimes.from_mapping(self.progress.phases), time.monotonic() - self._began_s
        steps_s = spent.of_steps.total_s
        return Goodput(share=steps_s / wall_s, wall_s=wall_s, steps_s=steps_s, lost_s=max(0.0, wall_s - spent.total_s))

    def rank_use(self, memory: MemoryUse) -> RankUse:
        """Returns what this process measured itself: the progress of a resumed run is the leading rank's."""
        before, now = self._restored, self.progress
        phases = {name: seconds - before.phases.get(name, 0.0) for name, seconds in now.phases.items()}
        return RankUse(
            rank=self.world.rank,
            host=platform.node(),
            steps=now.step - before.step,
            phases=PhaseTimes(**phases),
            memory=memory,
        )
