"""The workload that a question means: what it leaves open of sequences, tokens and batch is as people choose it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from trainwright.core.errors import RecipeError, about
from trainwright.core.frozen import dataclass
from trainwright.core.units import at_least_one, format_count
from trainwright.planner.cost.batches import critical_batch, divisible, refuse_longer, sequences_over, usual_batch
from trainwright.planner.counts.adapters import beside
from trainwright.planner.counts.lengths import spread_of
from trainwright.planner.counts.parameters import total_parameters
from trainwright.planner.counts.work import usable_precision
from trainwright.planner.plan.question import Question, meant_kernels
from trainwright.spec.convnet import transformer
from trainwright.spec.device import ClusterSpec
from trainwright.spec.parts.batch_sizes import BatchPart, BatchSizes
from trainwright.spec.plan import Assumption, Origin
from trainwright.spec.stack import Stack
from trainwright.spec.workload import Adapter, Frozen, MomentDtype, Precision, Workload

SEQUENCE_TOKENS = 8192
TUNED_SEQUENCE_TOKENS = 2048
"""hiyouga/LLaMA-Factory@ff6d4d12e:src/llamafactory/hparams/data_args.py, line 46; TRL cuts at 1,024, axolotl at 512."""
CLASSIFIED_SEQUENCE_TOKENS = 128
"""Of BERT's fine-tuning on GLUE (Devlin et al., 2018, arXiv 1810.04805; google-research/bert, README: recall)."""
TOKENS_PER_PARAMETER = 20
MOST_TOKENS, MOST_SEQUENCE_TOKENS = 10**15, 10**8
"""Beyond these a run is a slip: 20 times the largest published one, 10 times the longest published context."""
EXAMPLES, EXAMPLE_TOKENS = 50_000, 200
"""Instructions with their answers: as many as Alpaca has (52,002; recall), of some 200 tokens each, a guess."""
EPOCHS = 3.0
"""huggingface/transformers 5.23.0, training_args.py, num_train_epochs; Devlin et al. (2018), appendix A.3: 2 to 4."""
LARGE_PARAMETERS = 1e11
BATCH_CEILING_TOKENS, LARGE_BATCH_CEILING_TOKENS = 1 << 22, 1 << 24
"""Of published runs: 4 M tokens for Llama 2 of all sizes (arXiv 2307.09288, section 2.2), 16 M for Llama 3 405B (arXiv
2407.21783, table 4)."""
TUNED_BATCH = 16
"""pytorch/torchtune@bd2a0fc7c:recipes/configs/llama3_1/8B_lora_single_device.yaml (2 x 8);
modelscope/ms-swift@3602360a5:swift/trainers/arguments.py, lines 283-286."""
CLASSIFIED_BATCH = 32
"""Devlin et al. (2018), appendix A.3: 16 or 32."""
IMAGENET, IMAGENET_EPOCHS = 1_281_167, 90.0
AS_ASKED = "as asked"
"""The source of what a user said in full."""

Note = Callable[[Assumption], None]


def _unsaid(assumption: Assumption) -> None:
    """Takes an assumption of which nobody is told."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Data:
    """What is passed over several times: ``examples`` of ``tokens`` each, in the mean."""

    examples: int
    epochs: float
    tokens: int
    source: str


def workload_of(
    question: Question, machines: ClusterSpec, software: Stack, assumptions: list[Assumption], *, placed: bool = True
) -> Workload:
    """Returns the steps that are meant; appends an assumption for each size that the question leaves open.

    Where it is not ``placed``, the cluster is one of many that are tried, with larger batches, too.

    Raises:
        RecipeError: a size that cannot be.
    """
    note = assumptions.append
    sequence = sequence_of(question, note)
    tokens = _tokens_of(question, sequence, note)
    ranks = _data_ranks(question, machines, software) if placed else 1
    batch = _batch_of(question, machines, sequence, tokens, note, ranks=ranks, placed=placed)
    precision = usable_precision(machines.device, question.precision, software)
    if question.precision is None:
        first, *others = software.runs.precisions
        source = ", else ".join((f"{first} where the device has it", *others))
        assumptions.append(Assumption("precision", precision, "", "default", source, key="precision"))
    at_least_one(question.rank, field="rank")
    adapter = _adapter_of(question, note) if question.adapts else _adapter_of_recipe(question, precision)
    mean, spread = _lengths_of(question, sequence, tokens, note)
    if question.batch_tokens is not None:
        free = replace(question, batch_tokens=None)
        usual = _batch_of(free, machines, sequence, tokens, _unsaid, ranks=ranks, placed=placed)
        refuse_longer(question.model, batch, usual, tokens if mean is None else tokens / mean * sequence)
    ramp = _ramp_of_recipe(question.workload, batch, sequence)
    steps = max(1, -(-tokens // (batch if mean is None else batch // sequence * mean)))
    steps = max(1, BatchSizes(full=batch, ramp=ramp).steps(tokens)) if ramp else steps
    workload = Workload(
        sequence_tokens=sequence,
        batch_tokens=batch,
        steps=steps,
        precision=precision,
        optimizer=question.optimizer or "adamw",
        recompute=question.recompute or "none",
        states=question.states or software.states,
        moments=_moments(question, software, note),
        adapter=adapter,
        **meant_kernels(question, software, note),
        update_in_backward=bool(question.update_in_backward),
        paged_moments=bool(question.paged_moments),
        activation_offload=bool(question.activation_offload),
        example_tokens=mean,
        example_spread=spread,
        expert_imbalance=question.expert_imbalance,
        ramp=ramp,
        **_of_recipe(question.workload, steps),
    )
    assumptions += of_ramp(workload)
    return workload


def of_ramp(workload: Workload) -> tuple[Assumption, ...]:
    """Returns the batches of a run whose batch grows: what a plan says of a step is a mean over them."""
    if not workload.ramp:
        return ()
    value = ", then ".join(f"{part.steps:,} of {part.batch_tokens:,}" for part in workload.sizes.parts(workload.steps))
    why = "updates of each size; seconds and rates of a step are means over all updates, memory is of the largest"
    return (Assumption("batches", value, "tokens", "recipe", why, key="batch_ramp"),)


def _ramp_of_recipe(asked: Workload | None, batch: int, sequence: int) -> tuple[BatchPart, ...]:
    """Returns the smaller batches that a recipe's run begins with, where the question asks for no other batch."""
    same = asked is not None and (asked.batch_tokens, asked.sequence_tokens) == (batch, sequence)
    return asked.ramp if asked is not None and same else ()


def _adapter_of_recipe(question: Question, precision: Precision) -> Adapter | None:
    """Returns the adapters that a recipe trains, where the question itself says no method."""
    adapter = None if question.workload is None or question.method is not None else question.workload.adapter
    if adapter is None or adapter.frozen not in ("bf16", "fp32"):
        return adapter
    return replace(adapter, frozen="fp32" if precision in ("fp32", "tf32") else "bf16")  # the dtype of products


def _adapter_of(question: Question, note: Note) -> Adapter:
    """Returns the adapters that are meant; notes what they stand beside where that is left open."""
    with about("method"):
        model = transformer(question.model)
    if question.rank > model.width:
        what = "adapters of a higher rank than the model is wide can do no more than full tuning, and hold more"
        raise RecipeError(what, field="rank", seen=f"{question.rank:,}", expected=f"at most {model.width:,}")
    with about("targets"):
        frozen: Frozen = "nf4" if question.method == "qlora" else "bf16"
        adapter = beside(model, question.targets, rank=question.rank, frozen=frozen)
    if question.targets is None:
        source = "all linear layers of a block"
        if model.experts is not None:
            source += ", and no experts, which transformers keeps in one parameter; change `targets`"
        note(Assumption("adapters", ", ".join(adapter.targets), "", "default", source, key="adapters"))
    return adapter


def _moments(question: Question, software: Stack, note: Note) -> MomentDtype | None:
    """Returns the moments' format: where that is left open, as bitsandbytes' paged AdamW or the software has it."""
    usual, tuned = question.moments, question.tunes and question.optimizer in (None, "adamw")
    if usual is not None and question.optimizer in ("adafactor", "plain-sgd"):
        what, seen = "this optimizer has no moments to keep in other bits", f"{usual} with {question.optimizer}"
        raise RecipeError(what, field="moments", seen=seen, expected="adamw, muon or sgd")
    if usual is None and question.paged_moments:
        usual, source = "fp32", "bitsandbytes' paged 32-bit AdamW, whatever weights are; `moments` int8: its 8-bit one"
    elif usual is None and tuned and question.model.is_divisible and software.moments is not None:
        usual, source = software.moments, f"as software {software.name!r} has it in tuning"
    else:
        return usual
    note(Assumption("the optimizer's moments", usual, "", "default", source, key="moments"))
    return usual


def _of_recipe(asked: Workload | None, steps: int) -> dict[str, Any]:
    """Returns what only a recipe says of a workload; validations are as many steps apart as there."""
    if asked is None:
        return {}
    return {
        "document_masking": asked.document_masking,
        "validation_tokens": asked.validation_tokens,
        "validations": -(-steps * asked.validations // asked.steps),
    }


def sequence_of(question: Question, note: Note) -> int:
    """Returns the tokens of a sequence; notes an assumption where that is left open.

    Raises:
        RecipeError: an image has as many as its model says.
    """
    model = question.model
    if model.sees_images:
        if question.sequence_tokens not in (None, model.context_tokens):
            what, expected = "an image has as many as the model says", str(model.context_tokens)
            raise RecipeError(what, field="sequence_tokens", seen=str(question.sequence_tokens), expected=expected)
        if model.unit == "tokens":
            name, tokens = "tokens of an image", float(model.context_tokens)
            note(Assumption(name, tokens, "tokens", "given", "model", key="image_tokens"))
        return model.context_tokens
    if question.sequence_tokens is not None:
        return at_least_one(question.sequence_tokens, field="sequence_tokens")
    most, why = SEQUENCE_TOKENS, "the model's context"
    if question.task == "classify":
        most, why = CLASSIFIED_SEQUENCE_TOKENS, "as BERT is tuned"
    elif question.tunes:
        most, why = TUNED_SEQUENCE_TOKENS, "as LLaMA-Factory cuts them"
    tokens = min(model.context_tokens, most)
    note(Assumption("sequence", float(tokens), "tokens", "default", f"{why}, at most {most:,}", key="sequence"))
    return tokens


def _tokens_of(question: Question, sequence: int, note: Note) -> int:
    """Returns the tokens of the whole run; notes an assumption where they are not given."""
    if question.tokens is not None:
        return _at_least_a_sequence(question, sequence)
    given = (question.examples, question.epochs, question.example_tokens) != (None, None, None)
    if not (question.tunes or question.model.sees_images or given):
        tokens = TOKENS_PER_PARAMETER * total_parameters(question.model)
        source = f"{TOKENS_PER_PARAMETER} for each parameter: compute-optimal (Hoffmann et al., 2022)"
        note(Assumption(question.model.unit, float(tokens), "", "default", source, key="length"))
        return tokens
    if question.examples is None and not (question.tunes or question.model.sees_images):
        field = "epochs" if question.epochs is not None else "example_tokens"
        fix = "set `examples`, or `tokens` of the whole run"
        raise RecipeError("of how many examples?", field=field, expected="their number in a pretraining", fix=fix)
    usual = _usual(question, sequence)
    examples = question.examples or usual.examples
    epochs = usual.epochs if question.epochs is None else question.epochs
    each, model = question.example_tokens or usual.tokens, question.model
    tokens = max(1, round(examples * epochs * each))
    if tokens > MOST_TOKENS:
        field = next((name for name in ("epochs", "examples") if getattr(question, name) is not None), "example_tokens")
        seen = f"{examples:,} examples of {each:,} tokens, {epochs:,g} times"
        raise RecipeError("more than any run has", field=field, seen=seen, expected=f"at most {MOST_TOKENS:.0e} tokens")
    size = "" if each == 1 else f" of {each:,} tokens"
    times = "once" if epochs == 1 else f"{epochs:g} times"
    source = f"{examples:,} examples{size}, {times}; {usual.source}"
    counted, origin = tokens / model.batch_unit_tokens, _origin(given)
    note(Assumption(model.batch_unit, counted, "", origin, source, key="length"))
    return tokens


def _origin(is_given: bool) -> Origin:
    return "given" if is_given else "default"


def _at_least_a_sequence(question: Question, sequence: int) -> int:
    """Returns the tokens that are asked for.

    Raises:
        RecipeError: they are less than one sequence: a unit was forgotten.
    """
    tokens = at_least_one(question.tokens or 0, field="tokens")
    if tokens < sequence:
        one = "an image" if question.model.sees_images else "a sequence"
        fix = f"did you mean {tokens}B or {tokens}T?" if tokens < 1000 else None
        expected = f"at least the {sequence:,} of {one}"
        raise RecipeError("a run of less than a step", field="tokens", seen=f"{tokens:,}", expected=expected, fix=fix)
    return tokens


def passes_of(question: Question) -> float:
    """Returns how often a run sees its data: once where its tokens are said, and in a pretraining."""
    given = (question.examples, question.epochs, question.example_tokens) != (None, None, None)
    if question.tokens is not None or not (question.tunes or question.model.sees_images or given):
        return 1.0
    return _usual(question, 1).epochs if question.epochs is None else question.epochs


def _lengths_of(question: Question, sequence: int, tokens: int, note: Note) -> tuple[int | None, float]:
    """Returns mean and spread of examples that are not packed; None where they are.

    Raises:
        RecipeError: nothing says how long they are, they are longer than a sequence, or no texts at all.
    """
    if question.packing != "off":
        return None, 0.0
    if question.model.unit != "tokens" or question.model.sees_images:
        raise RecipeError("images are not packed", field="packing", seen="off", expected="a model of texts")
    if not question.tunes and question.example_tokens is None:
        what, fix = "how long are the examples?", "set `example_tokens`, their mean"
        raise RecipeError(what, field="packing", seen="off", fix=fix)
    usual = _usual(question, sequence)
    mean = question.example_tokens or min(usual.tokens, sequence)
    if mean > sequence:
        expected = f"at most the {sequence:,} of the longest"
        raise RecipeError("longer than a sequence", field="example_tokens", seen=f"{mean:,}", expected=expected)
    examples = question.examples or max(2.0, tokens / mean / (question.epochs or usual.epochs))
    spread = spread_of(mean, sequence, examples)
    value = f"{mean:,} in the mean, {sequence:,} at most"
    how = (
        f"log-normal, deviation {spread:.2f} of the logarithm: the longest of {examples:,.0f} is as long as a sequence"
    )
    source = f"assumed: {how}; each is padded to the longest of its micro batch"
    origin = _origin(question.example_tokens is not None)
    note(Assumption("lengths of examples", value, "tokens", origin, source, key="lengths"))
    return mean, spread


def _usual(question: Question, sequence: int) -> _Data:
    """Returns the data set that is meant where nothing is said of it."""
    if question.model.sees_images:
        each = question.model.context_tokens
        source = "by default ImageNet-1k (Goyal et al., 2017, arXiv 1706.02677)"
        return _Data(examples=IMAGENET, epochs=IMAGENET_EPOCHS, tokens=each, source=source)
    if question.task == "classify":
        source = "each padded to the sequence; by default 3 epochs, as transformers' trainer"
        return _Data(examples=EXAMPLES, epochs=EPOCHS, tokens=sequence, source=source)
    if question.tunes:
        how = "each a sequence" if question.packing == "off" else "packed"
        source = f"{how}; by default as many as Alpaca has, and epochs as transformers' trainer"
        # Longer examples are cut off.
        return _Data(examples=EXAMPLES, epochs=EPOCHS, tokens=min(EXAMPLE_TOKENS, sequence), source=source)
    return _Data(examples=EXAMPLES, epochs=1.0, tokens=sequence, source="each as long as a sequence, by default once")


def _batch_of(
    question: Question, machines: ClusterSpec, sequence: int, tokens: int, note: Note, *, ranks: int, placed: bool
) -> int:
    """Returns the tokens of a step's batch, in whole sequences; notes an assumption where they are not as given.

    Raises:
        RecipeError: no whole number of sequences is near.
    """
    if question.batch_tokens is not None:
        asked = at_least_one(question.batch_tokens, field="batch_tokens")
        return _rounded(asked, sequence, machines.devices, note, exact=question.workload is not None)
    if question.model.sees_images:
        sequences, source = usual_batch(question.model, machines.devices if placed else 1, tunes=question.tunes)
        critical = critical_batch(question.model, tokens)
        price = float(critical.price(sequences * sequence)) - 1
        source = f"{source}; {price:.0%} more epochs than tiny batches for the same loss ({critical.source})"
    elif question.tunes:
        sequences = CLASSIFIED_BATCH if question.task == "classify" else TUNED_BATCH
        who = "as BERT is tuned" if question.task == "classify" else "as torchtune and ms-swift have it"
        source = f"{sequences} sequences, {who}, or as many more as give each device the same"
        sequences += -sequences % machines.devices
    else:
        sequences, source = _critical_sequences(question, machines, sequence, tokens)
        if sequences % ranks:
            sequences = max(1, sequences // ranks) * ranks
            source += f"; a multiple of {ranks} data-parallel ranks"
    unit, batch = question.model.batch_unit, sequences * sequence
    note(Assumption("batch", batch / question.model.batch_unit_tokens, unit, "default", source, key="batch"))
    return batch


def _data_ranks(question: Question, machines: ClusterSpec, software: Stack) -> int:
    """Returns the data-parallel ranks that a batch has to be divided over: as asked, or as software has no others."""
    asked = question.layout.get("dp_replicate", 1) * question.layout.get("dp_shard", 1)
    axes = software.runs.axes.get("full", ())
    alone = bool(axes) and not set(axes) - {"dp_replicate", "dp_shard", "ep"}
    return machines.devices if alone else asked


def _critical_sequences(question: Question, machines: ClusterSpec, sequence: int, tokens: int) -> tuple[int, str]:
    """Returns the sequences of a batch up to the critical one, in a power of two or for each device as many."""
    large = total_parameters(question.model) > LARGE_PARAMETERS
    ceiling = LARGE_BATCH_CEILING_TOKENS if large else BATCH_CEILING_TOKENS
    critical = critical_batch(question.model, tokens)
    sequences = max(1, 1 << int(math.log2(max(1.0, min(critical.tokens, ceiling) / sequence))))
    sequences = sequences_over(sequences, machines.devices)
    source = (
        f"at most the critical batch of a run of {format_count(tokens)}, {critical.tokens / 1e6:,.2g}M "
        f"({critical.source}), and Llama's {format_count(ceiling)}"
    )
    return sequences, source


def _rounded(batch: int, sequence: int, devices: int, note: Note, *, exact: bool) -> int:
    """Returns a whole number of sequences near a batch (``4M``) that divides over many ranks.

    Whole ones are kept; in round millions (``256M``) that devices do not divide they are chance, if not ``exact``.
    """
    chance = not exact and sequence > 1 and batch % 1_000_000 == 0 and batch // sequence % devices
    if batch % sequence == 0 and not chance:
        return batch
    near = max(1, round(batch / sequence))
    over = divisible(near, unit=devices)
    rounded = (divisible(near) if over % devices else over) * sequence
    if abs(rounded - batch) > 0.1 * batch:
        expected = f"a multiple of the sequence's {sequence:,}, such as {rounded:,}"
        what, seen = "a batch has whole sequences", f"{batch:,} tokens"
        raise RecipeError(what, field="batch_tokens", seen=seen, expected=expected)
    source = f"near {batch:,}, in whole sequences of {sequence:,} that divide over many ranks"
    note(Assumption("batch", float(rounded), "tokens", "given", source, key="batch"))
    return rounded
