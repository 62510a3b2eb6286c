"""The keys of tasks that have some of their own; loaded where a recipe names such a task."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from trainwright.spec.sections.task import TaskSection


class ImageTaskSection(TaskSection):
    """Classes of images, and how training changes what it sees; evaluation sees images as they are."""

    shift: int = Field(0, ge=0, description="pixels by which an image moves at most, each way; black follows")
    flip: bool = Field(False, description="mirror half of the images, left to right")


class RegressSection(TaskSection):
    """A number of each document."""

    error: Literal["mse", "mae"] = Field(
        "mse", description="of the loss: mse, squared; mae, absolute, which numbers that are far off pull less"
    )


class PreferenceSection(TaskSection):
    """Answers that are preferred over others become likelier than those."""

    loss: Literal["dpo", "orpo"] = Field(
        "dpo",
        description="dpo: against the network that training begins with; orpo: cross-entropy of the chosen answer and "
        "odds, without one",
    )
    beta: float = Field(
        0.1, gt=0, description="dpo: how dear it is to leave the first network; orpo: weight of the odds (its lambda)"
    )
    label_smoothing: float = Field(
        0.0, ge=0, lt=0.5, description="dpo: share of preferences taken to be the other way round (conservative DPO)"
    )

    @model_validator(mode="after")
    def _smoothing_where_it_is_known(self) -> Self:
        if self.label_smoothing and self.loss != "dpo":
            raise ValueError(f"label_smoothing goes with loss: dpo, seen loss: {self.loss}; set label_smoothing: 0")
        return self


class RewardSection(TaskSection):
    """A number of each answer, larger for answers that people prefer."""

    center: float = Field(
        0.0, ge=0, description="weight of the squared sum of a pair's two rewards, which keeps them around 0; 0: none"
    )


class EmbedSection(TaskSection):
    """Vectors of texts, nearer to each other where texts belong together."""

    pooling: Literal["mean", "cls", "last"] = Field(
        "mean", description="what a text's vector is of: all of its tokens, the first or the last one"
    )
    cosine_temperature: float = Field(
        0.05, gt=0, le=10, description="what cosines are divided by; a low one heeds the nearest wrong texts most"
    )
    group: int = Field(
        16,
        ge=1,
        description="pairs of which each is told apart from the others; micro batches are multiples of it",
    )


class DistillSection(TaskSection):
    """Next tokens as a larger network predicts them, and as they are."""

    teacher: str = Field(
        min_length=1,
        description="directory of the model to learn from: a checkpoint, a bundle, one of Hugging Face or "
        "hf://OWNER/NAME; with this training's tokenizer",
    )
    temperature: float = Field(
        2.0, gt=0, le=100, description="what the logits of both are divided by before they are compared; 1: nothing"
    )
    alpha: float = Field(
        0.5, gt=0, le=1, description="weight of the teacher; the rest is that of the cross-entropy of the tokens"
    )
