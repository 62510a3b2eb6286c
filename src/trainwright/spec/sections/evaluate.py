"""The ``evaluate`` section of a recipe: splits, prompts, questions and benchmarks."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trainwright.spec.sections.base import Count, Section


class EvaluateExec(Section):
    """How evaluation is carried out."""

    batch_sequences: int = Field(16, gt=0, description="sequences per forward pass")


class QuestionsSection(Section):
    """Questions of one's own whose answers are known."""

    path: str = Field(min_length=1, description="file of JSON lines, a question with its answer in each")
    question_key: str = Field("question", min_length=1, description="key of the question")
    answer_key: str = Field("answer", min_length=1, description="key of the answer, or of a list of right ones")
    stop: tuple[str, ...] = Field((), description="texts that end an answer, beside the end of the text")


class BenchmarksSection(Section):
    """Public benchmarks, as lm-evaluation-harness defines them, and tasks of one's own in its form."""

    tasks: tuple[str, ...] = Field(min_length=1, description="names of tasks and groups, as lm-eval lists them")
    include: str | None = Field(None, min_length=1, description="folder with tasks of one's own, in lm-eval's YAML")
    few_shot: int | None = Field(None, ge=0, description="solved examples in a prompt; default: the task's")
    limit: int | None = Field(None, gt=0, description="examples of a task at most; default: all")


class EvaluateSection(Section):
    """What is measured on the trained model."""

    splits: tuple[Literal["train", "validation", "test"], ...] = Field(
        ("validation", "test"), min_length=1, description="splits to measure"
    )
    tokens: Count | None = Field(None, description="tokens per split; default: all")
    prompts: tuple[str, ...] = Field((), description="texts to complete")
    questions: QuestionsSection | None = Field(None, description="questions to ask, and how right the answers are")
    benchmarks: BenchmarksSection | None = Field(None, description="public benchmarks to measure the model by")
    max_new_tokens: int = Field(96, gt=0, description="longest completion")
    temperature: float = Field(0.0, ge=0, description="0 takes the likeliest token")
    exec: EvaluateExec = Field(default_factory=EvaluateExec, description="how, not what")
