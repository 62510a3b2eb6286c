"""Rates that the doctor measured on this machine, carried over from the probed shapes to others.

A product's rate is interpolated between the rates of probed shapes, by inverse squared distance between the logarithms
of tokens, inputs and outputs. What the blocks do beyond products, attention and casts of weights is the rest of the
measured blocks' time, in seconds per byte of the counted traffic, interpolated over the logarithms of tokens and width.
A layout changes the shapes that are looked up: tensor parallelism divides products, context parallelism tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TypeVar

import numpy as np

from trainwright.core.errors import RecipeError
from trainwright.core.registry import load
from trainwright.hardware.machine.probes import AttentionProbe, BlockProbe, MatmulPass, Probes
from trainwright.planner.counts.between import block_elements
from trainwright.planner.counts.flops import muon_flops
from trainwright.planner.counts.kernels import Exposure, Kernels, Kind
from trainwright.planner.counts.layouts import Layouts, Numbers
from trainwright.planner.counts.parallel.products import product_shape
from trainwright.planner.counts.parameters import BLOCK_PARTS, block_matrix_parameters, total_parameters, wide_matrices
from trainwright.planner.counts.pieces import loss_rows, makes_scores
from trainwright.planner.counts.process import Process, process_from
from trainwright.planner.counts.ranks import fullest, lighter_ends, owned_parameters, rank_parameters, slowest_layers
from trainwright.planner.counts.update import OPERATIONS, averaging_bytes, dealt, unfused_bytes, update_bytes
from trainwright.planner.rates.catalogue import Catalogue
from trainwright.planner.rates.near import near_bytes
from trainwright.spec.device import DTYPE_BYTES
from trainwright.spec.model import ModelSpec
from trainwright.spec.plan import INTERVAL
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import DEFAULT_KERNELS, TIMED_UPDATES, KernelChoice, LossChunk, ParallelPlan, Workload

DIRECTIONS: tuple[MatmulPass, ...] = ("forward", "grad_input", "grad_weight")
COMPILED_REST = 0.6
"""What torch.compile leaves of the time between products: on a 2-layer Llama stack in bf16 the blocks took 103 ms
instead of 144 ms, their products alone about 40 ms (docs/lab/log.md)."""
SPREAD = 0.085
"""Standard deviation of log(measured / predicted seconds) in audits of probed machines: nine of ten in 0.87 to 1.15."""
QUICK_SPREAD = 0.16
"""The same of a quick measurement against a thorough one: the root mean square of ten on two quiet machines, which
planned 0.98 to 1.57 times as long (docs/lab/log.md)."""
MOST_BUSY = 0.9
"""Of a machine that is busier still nobody knows how fast it is alone: ten times as fast is believed at most."""
SCORE_PASSES = (6, 7)
"""Over whole scores where they are written, forward and backward: the product's result, the mask's sum (a read and a
write), softmax (the same), the second product; its gradient, that of softmax (three), three products."""
EVALUATED_LOSS = 1 / 3
"""Of what the loss does beside its products, what is left without gradients."""
ADAPTERS_SPREAD = 0.32
"""What more adapters have, of which nothing is probed: one run took 1.38 times as long as a full one's error says."""
P = TypeVar("P")


@dataclass(frozen=True, kw_only=True, slots=True)
class LayoutShapes:
    """One layout of a model: all that the looked-up shapes depend on."""

    model: ModelSpec
    workload: Workload
    layouts: Layouts
    """Of length one."""
    kernels: KernelChoice = DEFAULT_KERNELS

    @property
    def tokens(self) -> float:
        """Returns the number of rows of a micro batch's product on one rank."""
        return float((self.layouts.micro_batch * self.workload.sequence_tokens / self.layouts.cp)[0])

    @property
    def layers(self) -> float:
        """Returns the number of blocks on the slowest rank."""
        return float(slowest_layers(self.model, self.layouts)[0])

    def products(self, *, beside: bool = False) -> Iterator[tuple[float, float, float, float]]:
        """Yields rows, outputs and inputs of each product on a rank, and its number in a micro batch there.

        Those of the rank's blocks, or the others, which stand ``beside`` them.
        """
        load, tokens = fullest(self.model, self.workload, self.layouts), np.asarray([self.tokens])
        share = 1.0 if beside else self.layers / self.model.blocks
        for matrix in wide_matrices(self.model, self.kernels.pad_vocabulary):
            if (matrix.part in BLOCK_PARTS) != beside:
                shape = product_shape(matrix, self.model, self.layouts, tokens, load)
                rows, outputs, inputs, count = (float(np.ravel(each)[0]) for each in shape)
                yield rows, outputs, inputs, count * share


@dataclass(frozen=True, kw_only=True)
class Probed:
    """What the doctor measured on one device; a ``RateSource`` for any cluster of such devices.

    Links are not measured: what software makes of communication comes from ``catalogue``.
    """

    probes: Probes
    catalogue: Catalogue = field(default_factory=Catalogue)

    def kernels(self, run: RunSpec, layouts: Layouts, *, without: Collection[Kind] = ()) -> Kernels:
        """Returns the seconds of each layout, interpolated; shapes that several layouts share are looked up once.

        Raises:
            RecipeError: the doctor has not measured what the run does.
        """
        self._check(run)
        if not isinstance(run.model, ModelSpec):
            return self.catalogue.kernels(run, layouts, without=without)  # at what products and memory reached here
        keys = np.stack([getattr(layouts, each) for each in sorted(_LOOKED_UP)])
        _, first, places = np.unique(keys, axis=1, return_index=True, return_inverse=True)
        shapes = LayoutShapes(model=run.transformer, workload=run.workload, layouts=layouts, kernels=run.kernels)
        source = load("trainwright.planner.rates.adapted:at", kind="rates")(self) if run.workload.adapter else self
        rows = [source.row(replace(shapes, layouts=layouts.take(first[[each]])), without) for each in range(len(first))]
        columns = {name: np.asarray([row[name] for row in rows], float)[places.reshape(-1)] for name in _OF_ONE}
        lighter, ends = lighter_ends(run.transformer, layouts)
        return Kernels(**columns, again=self.catalogue.kernels(run, layouts).again, lighter=lighter, lighter_ends=ends)

    def exposure(self, run: RunSpec) -> Exposure:
        """Returns what the run's stack makes of communication, as the catalogue says."""
        return self.catalogue.exposure(run)

    def process(self, run: RunSpec) -> Process | None:
        """Returns what the growth probes show, of networks whose blocks save about as much as the run's.

        Where torch's allocator holds what no tensor uses, that is ``reserved_unused``, not waste.
        """
        process = process_from(self.probes.growth, self.probes.baseline_bytes, near_bytes=near_bytes(run, self.probes))
        return process if self.probes.device_kind == "cpu" else replace(process, waste=0.0)

    def spread(self, run: RunSpec) -> float:
        """Returns ``SPREAD``; more of a quick measurement, of a busy machine, and of an exchange nobody measured.

        Convolutions nobody measured here: of them it begins with the catalogue's.
        """
        # Other programs leave a deviation too: alone the machine may be faster by their share.
        busy = min(self.probes.cpu_busy, MOST_BUSY) if self.probes.doubtful else 0.0
        busy_spread, quick_spread = -math.log(1 - busy) / INTERVAL, 0.0 if self.probes.thorough else QUICK_SPREAD
        others = ADAPTERS_SPREAD * bool(run.workload.adapter), run.stack.time.spread * (run.cluster.devices > 1)
        known = SPREAD if isinstance(run.model, ModelSpec) else self.catalogue.spread(run)
        return math.hypot(known, quick_spread, busy_spread, *others)

    def beyond(self, run: RunSpec, layouts: Layouts) -> Numbers:
        """Returns zeros: this machine itself was measured."""
        del run
        return np.zeros(len(layouts))

    def _check(self, run: RunSpec) -> None:
        device, known, work = self.probes.device_name, self.probes.dtypes(), run.workload
        if work.precision not in known:
            what, expected = "no rate for {precision} was measured", f"one of {', '.join(known)}"
            raise RecipeError(what, where=device, expected=expected, precision=work.precision)

    def row(self, shapes: LayoutShapes, without: Collection[Kind]) -> dict[str, float]:
        """Returns the fields of ``Kernels`` for one layout."""
        products = dict.fromkeys(DIRECTIONS, 0.0) if "products" in without else self._products(shapes)
        attention = (0.0, 0.0) if "attention" in without else self._attention(shapes)
        between = (0.0, 0.0) if "between" in without else self._between(shapes)
        head = (0.0, 0.0, 0.0) if "head" in without else self._head(shapes)
        parameters = float(np.add(*rank_parameters(shapes.model, shapes.layouts))[0])
        return {
            "forward": products["forward"] + attention[0] + between[0],
            "backward": products["grad_input"] + products["grad_weight"] + attention[1] + between[1],
            "weight": products["grad_weight"],
            "head": head[0],
            "head_backward": head[1],
            "head_evaluated": head[2],
            # Gradients beyond the first micro batch's are added to those before: two reads, one write.
            "accumulate": self.stream_s(12.0 * parameters, pieces=_pieces(shapes) + 2),
            "update": 0.0 if "update" in without else self._update(shapes),
        }

    def _products(self, shapes: LayoutShapes, *, beside: bool = False) -> dict[MatmulPass, float]:
        """Returns the seconds of linear layers of the rank's blocks, or of those ``beside`` them, by direction."""
        dtype, sums = shapes.workload.precision, dict.fromkeys(DIRECTIONS, 0.0)
        for rows, outputs, inputs, count in shapes.products(beside=beside):
            for direction in DIRECTIONS:
                each = self.matmul_s(direction, tokens=rows, inputs=inputs, outputs=outputs, dtype=dtype)
                sums[direction] += count * each
        return sums

    def _attention(self, shapes: LayoutShapes) -> tuple[float, float]:
        """Returns the seconds of both passes of all layers; ranks of context parallelism share the pairs."""
        model, work, layouts = shapes.model, shapes.workload, shapes.layouts
        sequences = shapes.layers * float((layouts.micro_batch / layouts.tp / layouts.cp)[0])
        sizes = {"heads": model.heads, "tokens": work.sequence_tokens, "head_size": model.head_size}
        known, written = self._attention_probes(shapes)
        forward, backward = (
            self.attention_s(known, sequences=sequences, **sizes, backward=backward) for backward in (False, True)
        )
        scores = sequences * model.heads * work.sequence_tokens**2 * DTYPE_BYTES[work.precision] * written
        moved = [self.stream_s(passes * scores, pieces=passes * shapes.layers) for passes in SCORE_PASSES]
        return forward + moved[0], backward + moved[1]

    def _attention_probes(self, shapes: LayoutShapes) -> tuple[Sequence[AttentionProbe], bool]:
        """Returns the probes of the kernel, and whether scores are written that those do not write."""
        kernel = shapes.kernels.attention
        every = [probe for probe in self.probes.attention if probe.dtype == shapes.workload.precision]
        if kernel == "auto":
            return every, False
        kind, tokens = self.probes.device_kind, shapes.workload.sequence_tokens
        whole = makes_scores(kernel, device_kind=kind, sequence_tokens=tokens)
        same = [each for each in every if makes_scores("auto", device_kind=kind, sequence_tokens=each.tokens) == whole]
        return same or every, whole and not same

    def _between(self, shapes: LayoutShapes) -> tuple[float, float]:
        """Returns the seconds of the blocks beside products and attention; weights are cast, their gradients back."""
        moved, casts = moved_bytes(shapes), self._casts_s(shapes)
        compiled = COMPILED_REST if shapes.layouts.compile[0] else 1.0
        place = (shapes.tokens, shapes.model.width)
        rests = _preferred(self._blocks, lambda each: each.probe.dtype == shapes.workload.precision)
        rests = _preferred(rests, lambda each: each.probe.model.family == shapes.model.family)
        places = [(each.probe.tokens, each.probe.model.width) for each in rests]
        forward = interpolate(place, zip(places, (each.forward for each in rests), strict=True))
        backward = interpolate(place, zip(places, (each.backward for each in rests), strict=True))
        return moved * forward * compiled + casts, 2 * moved * backward * compiled + casts

    def _casts_s(self, shapes: LayoutShapes) -> float:
        """Returns the seconds that weights take to reduced precision, or gradients to fp32; 0 for sharded ones."""
        size, layouts = DTYPE_BYTES[shapes.workload.precision], shapes.layouts
        if size == 4 or (layouts.zero_stage[0] == 3 and layouts.sharing[0] > 1):
            return 0.0
        elements = sum(outputs * inputs * count for _, outputs, inputs, count in shapes.products())
        return self.stream_s((4 + size) * elements, pieces=_pieces(shapes))

    def _head(self, shapes: LayoutShapes) -> tuple[float, float, float]:
        """Returns head and loss: forward, where the loss takes its gradient; backward; and without gradients.

        The embedding's and the head's gradients are dense.
        """
        model, dtype = shapes.model, shapes.workload.precision
        sums = self._products(shapes, beside=True)
        elements = sum(outputs * inputs * count for _, outputs, inputs, count in shapes.products(beside=True))
        classes = max(1, model.vocabulary if model.makes_logits else model.classes) / float(shapes.layouts.tp[0])
        rest = self.loss_rest_s(tokens=shapes.tokens, vocabulary=classes, dtype=dtype)
        rest += self._added_chunks_s(shapes, classes)
        return sum(sums.values()) + rest, self.stream_s(3 * 4.0 * elements), sums["forward"] + EVALUATED_LOSS * rest

    def _added_chunks_s(self, shapes: LayoutShapes, classes: float) -> float:
        """Returns the seconds that chunks of the loss take beyond as many as are usual: negative where there are fewer.

        Each adds its gradient of the head, in the products' dtype, to the sum in fp32.
        """
        tokens, vocabulary = max(1, round(shapes.tokens)), max(1, shapes.model.vocabulary)
        choices: tuple[LossChunk, ...] = (shapes.kernels.loss_chunk_tokens, "auto")
        counts = [math.ceil(tokens / loss_rows(each, tokens=tokens, vocabulary=vocabulary)) for each in choices]
        each = (8.0 + 2 * DTYPE_BYTES[shapes.workload.precision]) * classes * shapes.model.width
        return (counts[0] - counts[1]) * self.stream_s(each)

    def _update(self, shapes: LayoutShapes) -> float:
        """Returns the seconds of an update with clipping: a pass for the norm (a read), one to scale (read, write)."""
        average = self.stream_s(float(averaging_bytes(shapes.model, shapes.workload, shapes.layouts)[0]))
        return self._fused_update(shapes) + self._operations_s(shapes) + average

    def _operations_s(self, shapes: LayoutShapes) -> float:
        """Returns the seconds that AdamW takes beyond its fused kernel, where its operations run one by one."""
        more = float(unfused_bytes(shapes.model, shapes.workload, shapes.layouts, shapes.kernels)[0])
        calls = OPERATIONS * (_pieces(shapes) + 2)
        return self.stream_s(more, pieces=calls) + calls * self.probes.launch_s if more else 0.0

    def _fused_update(self, shapes: LayoutShapes) -> float:
        model, layouts = shapes.model, shapes.layouts
        owned = float(owned_parameters(model, layouts)[0])
        if shapes.workload.optimizer == "adamw":
            return self.adamw_s(owned)
        if shapes.workload.optimizer not in TIMED_UPDATES:  # its bytes, and those of clipping
            moved = update_bytes(model, replace(shapes.workload, average_every=0), layouts)
            return self.stream_s(float(moved[0]) + 12.0 * owned, pieces=_pieces(shapes))
        orthogonalised = owned * block_matrix_parameters(model) / total_parameters(model)
        muon = float(dealt(model, layouts, self.muon_s)[0])
        clipping = self.stream_s(12.0 * orthogonalised, pieces=_pieces(shapes))
        return muon + clipping + self.adamw_s(owned - orthogonalised)

    def matmul_s(self, direction: MatmulPass, *, tokens: float, inputs: float, outputs: float, dtype: str) -> float:
        """Returns the seconds of one product of a linear layer."""
        known = [
            ((probe.tokens, probe.inputs, probe.outputs), probe.flops_per_s)
            for probe in self.probes.matmul
            if probe.dtype == dtype and probe.direction == direction
        ]
        return 2.0 * tokens * inputs * outputs / interpolate((tokens, inputs, outputs), known)

    @staticmethod
    def attention_s(
        probes: Sequence[AttentionProbe], *, sequences: float, heads: int, tokens: int, head_size: int, backward: bool
    ) -> float:
        """Returns the seconds of causal attention, from probes at other lengths and head sizes."""
        timings = [probe.backward if backward else probe.forward for probe in probes]
        known = [
            ((probe.tokens, probe.head_size), probe.forward_flops / timing.median_s)
            for probe, timing in zip(probes, timings, strict=True)
        ]
        return 4.0 * sequences * heads * tokens**2 * head_size / interpolate((tokens, head_size), known)

    def loss_rest_s(self, *, tokens: float, vocabulary: float, dtype: str) -> float:
        """Returns the seconds of softmax, loss and its gradient without the products."""
        known = []
        for probe in _preferred(self.probes.loss, lambda probe: probe.dtype == dtype):
            shape = {"tokens": probe.tokens, "inputs": probe.width, "outputs": probe.vocabulary}
            products = sum(self.matmul_s(direction, **shape, dtype=probe.dtype) for direction in DIRECTIONS)
            rest_s = max(probe.timing.median_s - products, 0.05 * probe.timing.median_s)
            known.append(((probe.vocabulary,), rest_s / (probe.tokens * probe.vocabulary)))
        return tokens * vocabulary * interpolate((vocabulary,), known)

    def stream_s(self, moved_bytes: float, *, pieces: float = 1) -> float:
        """Returns the seconds of reading and writing so many bytes, in so many tensors one after the other."""
        known = [((probe.working_set_bytes,), probe.bytes_per_s) for probe in self.probes.bandwidth]
        return moved_bytes / interpolate((max(1.0, moved_bytes / pieces),), known) if moved_bytes else 0.0

    def adamw_s(self, parameters: float) -> float:
        """Returns the seconds of one AdamW update, clipping included."""
        known = [((probe.parameters,), probe.timing.median_s / probe.parameters) for probe in self.probes.update]
        return parameters * interpolate((max(1.0, parameters),), known)

    def muon_s(self, rows: int, columns: int) -> float:
        """Returns the seconds of one Muon update of one matrix."""
        known = []
        for probe in self.probes.muon:
            flops_per_s = muon_flops(probe.rows, probe.columns) / probe.timing.median_s
            known.append((tuple(sorted((probe.rows, probe.columns))), flops_per_s))
        return muon_flops(rows, columns) / interpolate(tuple(sorted((rows, columns))), known)

    @cached_property
    def _blocks(self) -> tuple[BlockRest, ...]:
        return tuple(self._rest_of(probe) for probe in self.probes.blocks)

    def _rest_of(self, probe: BlockProbe) -> BlockRest:
        """Returns the time of a probed block beyond products, attention and casts, for each byte of counted traffic."""
        shapes = shapes_of(probe)
        products, attention, moved = self._products(shapes), self._attention(shapes), moved_bytes(shapes)
        casts = self._casts_s(shapes)
        parts = (
            (probe.forward.median_s, products["forward"] + attention[0], moved),
            (probe.backward.median_s, products["grad_input"] + products["grad_weight"] + attention[1], 2 * moved),
        )
        forward, backward = (max(taken - known - casts, 0.05 * taken) / bytes_ for taken, known, bytes_ in parts)
        return BlockRest(probe=probe, forward=forward, backward=backward)


_LOOKED_UP = {of.name for of in fields(Layouts)} - {"offload", "recompute", "batch_sequences", "context", "unevenness"}
"""Parts of a layout that change which shapes are looked up."""
_OF_ONE = ("forward", "backward", "weight", "head", "head_backward", "head_evaluated", "accumulate", "update")
"""Fields of ``Kernels`` that are looked up for each layout."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockRest:
    """Seconds per byte of what lies between the products of a probed block."""

    probe: BlockProbe
    forward: float
    backward: float


def shapes_of(probe: BlockProbe) -> LayoutShapes:
    """Returns the shapes of a probed block: one device, one micro batch."""
    tokens, batch = probe.sequence_tokens, probe.tokens
    workload = Workload(sequence_tokens=tokens, batch_tokens=batch, steps=1, precision=probe.dtype, optimizer="adamw")
    alone = ParallelPlan(micro_batch_sequences=probe.sequences)
    return LayoutShapes(model=probe.model, workload=workload, layouts=Layouts.of([alone], ["none"], workload))


def moved_bytes(shapes: LayoutShapes) -> float:
    """Returns the counted traffic between the blocks' products, forward; the backward pass moves twice as much."""
    elements = block_elements(shapes.model, shapes.workload, shapes.layouts)
    return float(DTYPE_BYTES[shapes.workload.precision] * shapes.tokens * shapes.layers * elements[0])


def _pieces(shapes: LayoutShapes) -> float:
    """Returns the number of matrices of the rank's blocks."""
    return sum(count for *_, count in shapes.products())


def _preferred(probes: Sequence[P], wanted: Callable[[P], bool]) -> list[P]:
    """Returns those that are ``wanted``, or all of them where none is."""
    return [probe for probe in probes if wanted(probe)] or list(probes)


def interpolate(point: tuple[float, ...], known: Iterable[tuple[tuple[float, ...], float]]) -> float:
    """Returns a positive value at ``point`` from values at known points.

    Shepard's method (1968): the logarithms of the values, weighted by the inverse fourth power of the distance between
    the logarithms of the coordinates. It is exact at known points and never leaves their range.
    """
    total = weights = 0.0
    for place, value in known:
        distance = sum((math.log(a) - math.log(b)) ** 2 for a, b in zip(point, place, strict=True))
        if distance < 1e-12:
            return value
        weight = distance**-2
        total += weight * math.log(value)
        weights += weight
    if not weights:
        raise ValueError("nothing was measured to interpolate between")
    return math.exp(total / weights)
