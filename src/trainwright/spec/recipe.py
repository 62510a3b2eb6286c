"""The recipe: one file that says everything about a run. Unknown keys are errors.

Each section's ``exec`` says how the work is done (workers, micro batch, cadence); it is recorded but never part of an
artefact's identity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from trainwright.core.config.by_name import ByName
from trainwright.core.registry import is_reference
from trainwright.spec.families.family import DECODER, FAMILY
from trainwright.spec.model import ModelSpec, Unit
from trainwright.spec.sections.base import Section
from trainwright.spec.sections.corpus.labels import LabelKind
from trainwright.spec.sections.data import DataSection
from trainwright.spec.sections.evaluate import EvaluateSection
from trainwright.spec.sections.export import ExportSection
from trainwright.spec.sections.model import ModelSection
from trainwright.spec.sections.optimize import OptimizeSection
from trainwright.spec.sections.plan import PlanSection
from trainwright.spec.sections.serve import ServeSection
from trainwright.spec.sections.steps import StepSection
from trainwright.spec.sections.task import TASK, TASK_KEYS, TaskSection
from trainwright.spec.sections.train import TrainSection
from trainwright.spec.workload import TIMED_UPDATES, windows_per_epoch

ANSWERED = ("chats", "preferences")
"""Kinds of datasets that say of each token whether it belongs to an answer."""
LABEL_KINDS: Mapping[str, LabelKind] = {
    "documents-with-labels": "name",
    "documents-with-label-sets": "names",
    "documents-with-numbers": "number",
}
"""What a label of each kind of dataset with labels is."""
GIVEN = (*ANSWERED, "images", "words", "pairs")
"""Kinds of datasets that sources of their own give."""
KINDS = {
    "words": "words with a label each (kind: words, or kind: conll)",
    "pairs": "texts that belong together (kind: pairs, or kind: python-docstring-pairs)",
}
"""What to write where the kind of source is not called as its dataset."""


def _plain_name(name: str) -> str:
    if not name.replace("-", "").replace("_", "").replace(".", "").isalnum():
        raise ValueError(f"a name has letters, digits, '-', '_' and '.' only, seen {name!r}")
    if (size := len(name.encode())) > 200:  # of the 255 that a folder's name may have: others add a suffix to it
        raise ValueError(f"a name has at most 200 bytes, as UTF-8, because it names a folder; this one has {size}")
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
    task: Annotated[TaskSection, ByName(TASK, TaskSection, TASK_KEYS)] = Field(
        default_factory=TaskSection, description="what is learnt"
    )
    train: TrainSection = Field(default_factory=TrainSection, description="the training run")
    plan: PlanSection = Field(default_factory=PlanSection, description="what the plan compares with")
    optimize: OptimizeSection = Field(
        default_factory=OptimizeSection, description="what is tried to make training faster"
    )
    evaluate: EvaluateSection = Field(default_factory=EvaluateSection, description="what is measured")
    export: ExportSection = Field(default_factory=ExportSection, description="bundles")
    serve: ServeSection = Field(default_factory=ServeSection, description="the HTTP server")
    stages: tuple[StepSection, ...] | None = Field(
        None, min_length=1, description="the steps, where they are not the usual ones: pretrain, then fine-tune, ..."
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if problem := self._image_problem():
            raise ValueError(problem)
        if self.train.sequence_tokens > self.model.context_tokens:
            longest = f"model.context_tokens ({self.model.context_tokens})"
            raise ValueError(f"train.sequence_tokens ({self.train.sequence_tokens}) exceeds {longest}")
        needs, gives = self.task.kind.needs, self.data.records
        if (needs if needs in GIVEN else "documents") != gives:
            wanted = KINDS.get(needs, f"kind: {needs}") if needs in GIVEN else "documents"
            raise ValueError(f"data.sources give {gives}, and the task {self.task.name} needs {wanted}")
        if needs in LABEL_KINDS and not self.data.labelled:
            source = next(number for number, each in enumerate(self.data.sources) if not each.labelled)
            raise ValueError(
                f"data.sources.{source} has no labels, which the task {self.task.name} needs: "
                "give kind: jsonl and its label_key, or kind: csv or parquet and its label_column"
            )
        if (kind := LABEL_KINDS.get(needs, self.data.label_kind)) != self.data.label_kind:
            raise ValueError(
                f"data.sources have label_kind: {self.data.label_kind}, and the task {self.task.name} needs "
                f"label_kind: {kind}"
            )
        if self.model.mup is not None and (why := self.model.mup.refusal(self.task, self.train)):
            raise ValueError(f"model.mup does not hold here: {why}; or leave it out")
        network = self.model.loaded.kind
        if network not in self.task.kind.networks:
            needed, family = " or ".join(self.task.kind.networks), self.model.family
            raise ValueError(
                f"the task {self.task.name} needs a network of another kind: {needed}; {family} is: {network}"
            )
        return self

    @property
    def counted(self) -> tuple[Unit, int]:
        """What people count a batch in, and the tokens of one."""
        return ("images", self.train.sequence_tokens) if self.task.kind.needs == "images" else ("tokens", 1)

    def _image_problem(self) -> str | None:
        """Returns what keeps a network of images from its task, its images or its sequences; None where nothing does.

        Raises:
            RecipeError: as ``ModelSection.loaded``.
        """
        model, images = self.model, self.data.images
        if not model.loaded.sees_images:
            return None
        if "vision" not in self.task.kind.networks:
            return f"model.family {model.family} sees images, and the task {self.task.name} reads texts"
        if images is not None and images.size != model.image_size:
            return f"model.image_size ({model.image_size}) is not data.images.size ({images.size}): make them equal"
        if self.train.sequence_tokens != model.context_tokens:
            what = "" if model.convolutions else ", which are its patches and the class token"
            return (
                f"train.sequence_tokens ({self.train.sequence_tokens}) is not the {model.context_tokens} tokens of an "
                f"image{what}: write train.sequence_tokens: {model.context_tokens}"
            )
        return None

    def model_spec(self, *, vocabulary: int) -> ModelSpec:
        """Returns the network's shape for a tokenizer of ``vocabulary`` entries, with the head that the task needs."""
        spec = self.model.spec(vocabulary=vocabulary)
        outputs, labels = self.task.outputs, self.task.labels or None
        if self.task.kind.makes == "embedding":
            return replace(spec, language_head=False, pooler=False)
        if not outputs:
            return spec
        encodes, of_tokens = spec.kind == "encoder", self.task.kind.of_tokens
        return replace(
            spec,
            classes=outputs,
            labels=labels,
            language_head=False,
            pooler=encodes and not of_tokens,
            token_classes=of_tokens and not encodes,
        )

    @property
    def unmeasured(self) -> dict[str, str]:
        """Returns names, by what they are, of all that a plan counts as something else: nobody has measured them."""
        optimizer, network = self.train.optimizer, FAMILY.load(self.model.family).network
        known = optimizer.name == optimizer.counted and optimizer.counted in TIMED_UPDATES
        names = {} if known else {"optimizer": optimizer.name}
        names |= {} if self.task.kind.measured else {"task": self.task.name}
        names |= {} if self.model.convolutions is None else {"convolutions": self.model.family}
        return names | {"network": network} if is_reference(self.model.family) and network != DECODER else names

    @property
    def masks_documents(self) -> bool:
        """Returns whether no token attends to another document of its sequence: asked for, or as chats always are."""
        return self.train.document_masking or self.task.kind.needs in (*ANSWERED, "pairs")

    def epoch_tokens(self, *, tokens: int, documents: int) -> int:
        """Returns the tokens that training computes on in one pass over a split; padding counts.

        Args:
            tokens: of the split.
            documents: of the split; a task may read each in a sequence of its own.
        """
        size = self.train.sequence_tokens
        documents //= self.data.texts
        return size * (documents if self.task.kind.reads == "documents" else windows_per_epoch(tokens, size))

    def identity(self, section: str) -> dict[str, Any]:
        """Returns a section without its ``exec``: what the section contributes to a fingerprint."""
        value: BaseModel = getattr(self, section)
        return value.model_dump(mode="json", exclude={"exec"})
