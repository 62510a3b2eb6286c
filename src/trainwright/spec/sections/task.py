"""The ``task`` section of a recipe: what the network learns; and what is known of a task without torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, Field, model_validator

from trainwright.core.errors import RecipeError
from trainwright.core.extension import Extension
from trainwright.core.frozen import dataclass
from trainwright.core.plug_in import InstanceOf
from trainwright.spec.model import ModelKind
from trainwright.spec.sections.base import Section

Labelled = Literal["documents-with-labels", "documents-with-label-sets", "documents-with-numbers"]
Needs = Literal["documents", Labelled, "words", "chats", "preferences", "pairs", "images"]
Makes = Literal["text", "gaps", "classes", "number", "reward", "embedding"]


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskKind:
    """What a task needs and makes; no torch here, so that plans and pipelines need none.

    Attributes:
        make: ``package.module:function`` of recipe and dataset that gives the ``Task`` (``model/tasks/task.py``).
        needs: the kind of its dataset: documents, documents of which each has a label, a set of labels or a
            number, sentences of words with a label each, chats, preferences, pairs of texts, or images.
        reads: windows of the stream of tokens, or whole documents or images, each in a sequence of its own.
        makes: what the head's outputs are: tokens of a text, what stood at its gaps, the classes that
            ``task.labels`` name, one number, or the reward of an answer; without a head, an embedding.
        of_tokens: its classes are told of tokens, not of a whole document.
        networks: the kinds of networks that can learn it.
        divides: its sequences may lie on several ranks (``cp``): the ``Task`` is one that ``DividesSequences``.
        pipelines: its network may lie on several ranks in stages (``pp``).
        tensors: its network's matrices may be cut among several ranks (``tp``).
        smooths: its loss is the cross-entropy of the network's ``head_loss``, whose targets ``train.loss`` can change.
        measured: its batches cost one pass of the network forth and back, as plans count those of every task.
        loss_unit: what its loss is in, summed over what it is averaged over.
        micro_batches: ``package.module:function`` of recipe and layout that says which micro batches it cannot learn.
        problem_type: what transformers calls the problem of its networks, where their outputs do not tell it.
        Section: the class of the keys of its own beside ``task.name``; it derives from ``TaskSection``.
    """

    make: str
    needs: Needs = "documents"
    reads: Literal["windows", "documents"] = "windows"
    makes: Makes = "text"
    of_tokens: bool = False
    networks: tuple[ModelKind, ...] = ("decoder", "encoder")
    divides: bool = False
    pipelines: bool = True
    tensors: bool = True
    smooths: bool = False
    measured: bool = False
    loss_unit: str = "nats"
    micro_batches: str | None = None
    problem_type: str | None = None
    Section: type[BaseModel] | None = None
    CODE: ClassVar[tuple[str, ...]] = ("make",)


_OURS = "trainwright.model.tasks"
_DECODER: tuple[ModelKind, ...] = ("decoder",)


def _whole(make: str, needs: Needs, *, makes: Makes = "classes", divides: bool = True, **more: Any) -> TaskKind:
    """Returns a task of ours that reads whole documents."""
    how: dict[str, Any] = {"makes": makes, "divides": divides, **more}
    return TaskKind(make=f"{_OURS}.{make}", needs=needs, reads="documents", measured=True, **how)


TASKS: Mapping[str, TaskKind] = {
    "next-token": TaskKind(
        make=f"{_OURS}.next_token:next_token", networks=_DECODER, divides=True, smooths=True, measured=True
    ),
    "masked": TaskKind(make=f"{_OURS}.masked:masked", makes="gaps", networks=("encoder",), smooths=True),
    "classify": _whole("classify:classify", "documents-with-labels", smooths=True),
    "classify-many": _whole(
        "documents.classify_many:classify_many", "documents-with-label-sets", problem_type="multi_label_classification"
    ),
    "regress": _whole(
        "documents.regress:regress",
        "documents-with-numbers",
        makes="number",
        loss_unit="scaled error",
        problem_type="regression",
    ),
    "classify-tokens": _whole("words.classify_tokens:classify_tokens", "words", of_tokens=True, smooths=True),
    "chat": TaskKind(
        make=f"{_OURS}.chat:chat", needs="chats", networks=_DECODER, divides=True, smooths=True, measured=True
    ),
    "classify-images": _whole("images:classify_images", "images", divides=False, networks=("vision",), smooths=True),
    "preference": TaskKind(
        make=f"{_OURS}.preferences.preference:preference", needs="preferences", networks=_DECODER, pipelines=False
    ),
    "reward": TaskKind(
        make=f"{_OURS}.preferences.reward:reward",
        needs="preferences",
        makes="reward",
        networks=_DECODER,
        measured=True,
    ),
    "embed": _whole(
        "embeddings.embed:embed",
        "pairs",
        makes="embedding",
        divides=False,
        networks=("encoder",),
        micro_batches=f"{_OURS}.embeddings.refusals:refusals",
    ),
    "distill": TaskKind(
        make=f"{_OURS}.distillation.distill:distill", networks=_DECODER, divides=True, pipelines=False, tensors=False
    ),
}
TASK = Extension("task", TASKS, InstanceOf(TaskKind))
MOST_SHOWN = 20


class TaskSection(Section):
    """What the network learns from the dataset."""

    name: Annotated[str, TASK] = Field(
        "next-token",
        description="predict the next token, fill gaps, classify documents (by one label or many), words or images, "
        "tell a number of a document, answer in chats, prefer answers, give rewards to answers, embed texts, learn "
        "from a teacher's logits",
    )
    labels: tuple[str, ...] = Field((), description="the classes in the head's order, for a task that has classes")

    @property
    def kind(self) -> TaskKind:
        """Returns what the task needs and makes.

        Raises:
            RecipeError: a plug-in cannot be imported, or is no ``TaskKind``.
        """
        kind: TaskKind = TASK.load(self.name)
        return kind

    @property
    def outputs(self) -> int:
        """Returns how many outputs the head has that the task needs; 0: as many as the vocabulary."""
        return 1 if self.kind.makes in ("number", "reward") else len(self.labels)

    def check_labels(self, names: Iterable[str]) -> None:
        """Compares the labels of documents with ``labels``.

        Raises:
            RecipeError: documents have others; names them all.
        """
        unknown = sorted(set(names) - set(self.labels))
        if unknown:
            more = f" and {len(unknown) - MOST_SHOWN} more" if len(unknown) > MOST_SHOWN else ""
            raise RecipeError(
                "documents have labels that task.labels lacks",
                where="task.labels",
                seen=", ".join(map(repr, unknown[:MOST_SHOWN])) + more,
                expected=f"among {', '.join(map(repr, self.labels))}",
                fix="add them to task.labels, or take these documents out of the corpus",
            )

    @model_validator(mode="after")
    def _labels_where_classes_are(self) -> Self:
        makes = self.kind.makes
        if makes != "classes" and self.labels:
            raise ValueError(
                "labels go with a task that has classes; name: classify, classify-many, classify-tokens or "
                "classify-images has them"
            )
        if makes == "classes" and len(self.labels) < 2:
            raise ValueError(f"labels must name at least 2 classes for name: {self.name}, seen {len(self.labels)}")
        if len(set(self.labels)) < len(self.labels) or "" in self.labels:
            raise ValueError("labels must differ from each other, and none may be empty")
        return self


OWN = "trainwright.spec.sections.tasks.keys"
TASK_KEYS: Mapping[str, str] = {
    "regress": f"{OWN}:RegressSection",
    "classify-images": f"{OWN}:ImageTaskSection",
    "preference": f"{OWN}:PreferenceSection",
    "reward": f"{OWN}:RewardSection",
    "embed": f"{OWN}:EmbedSection",
    "distill": f"{OWN}:DistillSection",
}
"""Tasks of ours that have keys of their own, each with the class of them."""
