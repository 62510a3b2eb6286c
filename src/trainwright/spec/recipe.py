"""The recipe: one file that says everything about a run. Unknown keys are errors.

Each section's ``exec`` says how the work is done (workers, micro batch, cadence); it is recorded but never part of an
artefact's identity.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from trainwright.core.errors import RecipeError
from trainwright.core.units import parse_count, parse_duration, parse_seconds
from trainwright.spec.model import Activation, ModelSpec, Norm, Positions
from trainwright.spec.recipe_data import DataSection
from trainwright.spec.section import Positive, Section


def _quantity(parse: Any) -> BeforeValidator:
    def read(value: Any) -> Any:
        try:
            return parse(value)
        except RecipeError as error:
            raise ValueError(str(error)) from None

    return BeforeValidator(read)


Count = Annotated[int, _quantity(parse_count), Field(gt=0)]
Seconds = Annotated[float, _quantity(parse_seconds), Field(ge=0)]
Average = Annotated[float, Field(ge=0, lt=1)]
DurationText = Annotated[str, _quantity(lambda value: (parse_duration(value), str(value))[1])]
"""Kept as the user wrote it (``25M tok``, ``20 tok/param``); ``parse_duration`` gives the value."""


def _nearest_divisor(width: int, heads: int) -> int:
    """The divisor of ``width`` nearest to ``heads``, the smaller of two."""
    start = min(heads, width)
    near = (number for distance in range(start) for number in (start - distance, start + distance))
    return next(number for number in near if width % number == 0)


class ModelSection(Section):
    """The network. Sizes that are left out follow from the family."""

    family: Literal["llama", "gpt2"] = Field("llama", description="model family: a file under model/families")
    layers: int = Field(gt=0, description="transformer blocks")
    width: int = Field(gt=0, description="hidden size")
    heads: int = Field(gt=0, description="query heads")
    kv_heads: int | None = Field(None, gt=0, description="key/value heads; default: heads (no grouping)")
    head_size: int | None = Field(None, gt=0, description="size of one head; default: width / heads")
    ffn_width: int | None = Field(
        None, gt=0, description="feed-forward size; default: 8/3 width to a multiple of 64 (llama), 4 width (gpt2)"
    )
    context_tokens: Count = Field(1024, description="longest sequence the model can see")
    tied: bool | None = Field(None, description="share the embedding with the output head; default: the family's")
    rope_theta: float = Field(10000.0, gt=0, description="base of the rotary frequencies")
    norm_epsilon: float = Field(1e-5, gt=0, description="epsilon of the normalisation layers")
    init_from: str | None = Field(None, description="start from the weights of this Hugging Face directory")

    @model_validator(mode="after")
    def _divides(self) -> Self:
        if self.head_size is None and self.width % self.heads:
            near = _nearest_divisor(self.width, self.heads)
            raise ValueError(
                f"width ({self.width}) is not divisible by heads ({self.heads}); "
                f"nearest that does: heads={near}, or set head_size"
            )
        problems = self.spec(vocabulary=1).problems()
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def spec(self, *, vocabulary: int) -> ModelSpec:
        """The shape, for a tokenizer of ``vocabulary`` entries."""
        llama = self.family == "llama"
        norm: Norm = "rmsnorm" if llama else "layernorm"
        positions: Positions = "rope" if llama else "learned"
        activation: Activation = "silu" if llama else "gelu_tanh"
        default_ffn = -(-(8 * self.width // 3) // 64) * 64 if llama else 4 * self.width
        return ModelSpec(
            family=self.family,
            layers=self.layers,
            width=self.width,
            heads=self.heads,
            kv_heads=self.kv_heads or self.heads,
            head_size=self.head_size or self.width // self.heads,
            ffn_width=self.ffn_width or default_ffn,
            vocabulary=vocabulary,
            context_tokens=self.context_tokens,
            tied=(not llama) if self.tied is None else self.tied,
            gated=llama,
            norm=norm,
            norm_epsilon=self.norm_epsilon,
            positions=positions,
            rope_theta=self.rope_theta,
            bias=not llama,
            activation=activation,
        )


class OptimizerSection(Section):
    """AdamW on everything, or Muon on the matrices of the blocks and AdamW on the rest."""

    name: Literal["adamw", "muon"] = Field("adamw", description="adamw, or muon for the blocks' matrices")
    lr: float = Field(3e-4, gt=0, description="peak learning rate of AdamW")
    embedding_lr: float | None = Field(None, gt=0, description="peak learning rate of the embeddings; default: lr")
    betas: tuple[Average, Average] = Field((0.9, 0.95), description="AdamW's averaging of gradient and its square")
    epsilon: float = Field(1e-8, gt=0, description="AdamW's epsilon")
    weight_decay: float = Field(0.1, ge=0, description="decoupled weight decay of AdamW's matrices")
    muon_lr: float = Field(0.02, gt=0, description="peak learning rate of Muon")
    muon_momentum: float = Field(0.95, ge=0, lt=1, description="Muon's Nesterov momentum")
    muon_weight_decay: float = Field(0.0, ge=0, description="decoupled weight decay of Muon's matrices")


class ScheduleSection(Section):
    """Learning rate over the run: linear warm-up, then one decay."""

    name: Literal["cosine", "linear", "wsd", "constant"] = Field(
        "cosine", description="decay shape; wsd is warm-up, stable, then linear decay over decay_fraction"
    )
    warmup: DurationText = Field("100 steps", description="length of the warm-up")
    decay_fraction: float = Field(0.2, gt=0, le=1, description="share of the run that wsd decays over")
    final_ratio: float = Field(0.1, ge=0, le=1, description="learning rate at the end as a share of the peak")


class ValidationSection(Section):
    """Loss on held-out data while training."""

    every_steps: int = Field(250, gt=0, description="steps between validations; the last step is always validated")
    tokens: Count | None = Field(None, description="tokens of each validation; default: the whole validation split")


class TrainExec(Section):
    """How training is carried out; changes nothing about what is trained, beyond floating-point rounding."""

    micro_batch: Positive | Literal["auto"] = Field(
        "auto", description="sequences per forward pass; auto: the planner's"
    )
    compile: bool | Literal["auto"] = Field("auto", description="torch.compile; auto: where doctor found a compiler")
    threads: Positive | Literal["auto"] = Field("auto", description="CPU threads; auto: the physical cores")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="where to train")
    checkpoint_every: Seconds = Field(60.0, description="time between checkpoints; 0 writes the last one only")
    keep_checkpoints: int = Field(2, gt=0, description="checkpoints kept while training")
    log_every_steps: int = Field(10, gt=0, description="steps between logged metrics")
    tensorboard: bool = Field(True, description="also write TensorBoard event files")


class TrainSection(Section):
    """The mathematics of the training run."""

    sequence_tokens: Count = Field(1024, description="tokens of one training sequence")
    batch_tokens: Count = Field(65536, description="tokens of one optimizer update, over all devices")
    duration: DurationText = Field("20 tok/param", description="'300B tok', '20 tok/param', '2000 steps', '3 epochs'")
    optimizer: OptimizerSection = Field(default_factory=OptimizerSection, description="the update rule")
    schedule: ScheduleSection = Field(default_factory=ScheduleSection, description="learning rate over time")
    validation: ValidationSection = Field(default_factory=ValidationSection, description="held-out loss")
    precision: Literal["auto", "fp32", "bf16"] = Field(
        "auto", description="arithmetic of the matrices; auto: bf16 where the machine multiplies it faster than fp32"
    )
    clip_norm: float | None = Field(1.0, gt=0, description="largest global gradient norm; null: none")
    document_masking: bool = Field(False, description="no token attends across a document boundary")
    recompute: Literal["none", "full"] = Field("none", description="recompute activations in the backward pass")
    exec: TrainExec = Field(default_factory=TrainExec, description="how, not what")

    @model_validator(mode="after")
    def _divides(self) -> Self:
        if self.batch_tokens % self.sequence_tokens:
            near = max(1, round(self.batch_tokens / self.sequence_tokens)) * self.sequence_tokens
            raise ValueError(
                f"batch_tokens ({self.batch_tokens}) is not a multiple of sequence_tokens "
                f"({self.sequence_tokens}); nearest that is: {near}"
            )
        return self


class EvaluateExec(Section):
    """How evaluation is carried out."""

    batch_sequences: int = Field(16, gt=0, description="sequences per forward pass")


class EvaluateSection(Section):
    """What is measured on the trained model."""

    splits: tuple[Literal["train", "validation", "test"], ...] = Field(
        ("validation", "test"), min_length=1, description="splits to measure"
    )
    tokens: Count | None = Field(None, description="tokens per split; default: all")
    prompts: tuple[str, ...] = Field((), description="texts to complete")
    max_new_tokens: int = Field(96, gt=0, description="longest completion")
    temperature: float = Field(0.0, ge=0, description="0 takes the likeliest token")
    exec: EvaluateExec = Field(default_factory=EvaluateExec, description="how, not what")


class ExportSection(Section):
    """What the trained model is turned into."""

    formats: tuple[Literal["huggingface"], ...] = Field(("huggingface",), min_length=1, description="bundles to write")
    dtype: Literal["fp32", "bf16"] = Field("fp32", description="stored precision of the weights")


class ServeDemo(Section):
    """A question that `trainwright run` asks the served model over HTTP before it stops it."""

    prompt: str = Field(description="text to complete")
    max_tokens: int = Field(64, gt=0, description="longest answer")
    temperature: float = Field(0.0, ge=0, description="0 takes the likeliest token")
    seed: int = Field(0, description="seed of the sampling")


class ServeSection(Section):
    """The HTTP server."""

    model_name: str | None = Field(None, description="name in /v1/models; default: the recipe's name")
    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8000, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    max_concurrent: int = Field(8, gt=0, description="requests generated at once; more wait in line")
    max_waiting: int = Field(64, ge=0, description="requests waiting in line; more get status 429")
    demo: ServeDemo | None = Field(None, description="a question asked by `trainwright run`")


class PlanSection(Section):
    """What the plan compares with."""

    rent_on: tuple[str, ...] = Field(
        ("t4", "l4", "a10g", "a100-sxm-80gb", "h100-sxm"), description="devices to price the same run on"
    )


def _plain_name(name: str) -> str:
    if not name.replace("-", "").replace("_", "").replace(".", "").isalnum():
        raise ValueError(f"a name has letters, digits, '-', '_' and '.' only, seen {name!r}")
    return name


class Recipe(Section):
    """Everything about a run, from corpus to server."""

    model_config = ConfigDict(title="Trainwright recipe")

    name: Annotated[str, AfterValidator(_plain_name)] = Field(
        min_length=1, description="names the workspace and the served model"
    )
    seed: int = Field(
        0, ge=0, lt=2**63, description="the one seed; every random number is a function of it and a counter"
    )
    model: ModelSection = Field(description="the network")
    data: DataSection = Field(description="the corpus and its tokenizer")
    train: TrainSection = Field(default_factory=TrainSection, description="the training run")
    plan: PlanSection = Field(default_factory=PlanSection, description="what the plan compares with")
    evaluate: EvaluateSection = Field(default_factory=EvaluateSection, description="what is measured")
    export: ExportSection = Field(default_factory=ExportSection, description="bundles")
    serve: ServeSection = Field(default_factory=ServeSection, description="the HTTP server")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.train.sequence_tokens > self.model.context_tokens:
            raise ValueError(
                f"train.sequence_tokens ({self.train.sequence_tokens}) exceeds model.context_tokens "
                f"({self.model.context_tokens})"
            )
        return self

    def identity(self, section: str) -> dict[str, Any]:
        """A section without its ``exec``: what the section contributes to a fingerprint."""
        value: BaseModel = getattr(self, section)
        return value.model_dump(mode="json", exclude={"exec"})
