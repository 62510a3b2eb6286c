"""The stages: what each is made of, what it takes, and the string that names its code.

A stage names its inputs by role and by the kind of artefact that fits; its fingerprint covers its identity
configuration, the named files of its inputs, and digests from outside (the corpus, the machine, pretrained weights).
Code is named by string, so that `plan` never loads a trainer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from trainwright.artifact.model_folder import (
    CHAT_TEMPLATE,
    IMAGE_PROCESSOR,
    MODEL_FILES,
    TARGET_SCALE,
    TOKENIZER,
    TOKENIZER_CONFIG,
)
from trainwright.artifact.store import Artifact, open_artifact
from trainwright.core.errors import RecipeError, RecipeErrors, TrainwrightError
from trainwright.core.fingerprint import file_digest
from trainwright.core.frozen import dataclass
from trainwright.core.paths import local_path
from trainwright.core.registry import installed, is_reference, load
from trainwright.core.source_digest import code_of, source_digest
from trainwright.core.spelling import unknown
from trainwright.core.units import parse_duration
from trainwright.pipeline.base.outside import benchmarks_outside, questions_outside, shape_of_teacher, weights_outside
from trainwright.pipeline.identities import (
    data_identity,
    evaluate_identity,
    export_identity,
    optimize_identity,
    plan_identity,
    report_identity,
    serve_identity,
    train_identity,
)
from trainwright.spec.manifest import KINDS
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.data import TokenizerSection

DATASET_FILES = (
    "dataset.json",
    TOKENIZER,
    "*.tokens",
    "*.index",
    "*.labels",
    "*.numbers",
    "*.answers",
    CHAT_TEMPLATE,
    TOKENIZER_CONFIG,
    IMAGE_PROCESSOR,
    TARGET_SCALE,
)

InputFrom = str | Path
"""What an input of a step is taken from: another step, by its name, or an artefact, by its path."""

Identity = Callable[[Recipe, Mapping[str, Artifact]], Mapping[str, Any]]
Settled = Callable[[Recipe, Mapping[str, Artifact]], Recipe]
Outside = Callable[[Recipe, Path], Mapping[str, str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Need:
    """An input of a stage.

    ``files`` are patterns of the files that the result depends on; none where the stage reads the artefact for how it
    works, not for what it makes. The stage can do without an ``optional`` one.
    """

    kind: str
    files: tuple[str, ...] = ("*",)
    optional: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """From artefacts to an artefact of the kind ``makes``.

    ``needs`` are its inputs by role. A role that is called like its kind is filled from what is there or can be made;
    another one, such as ``base``, only where a recipe names it. ``sections`` are those of the recipe that the
    stage, or what is made for it, reads; ``settled`` gives the recipe that it works with once its inputs are there.
    ``aside`` are kinds that later stages make, handed in where an earlier run left them and not a part of the address.
    ``check`` names a function of the recipe and of a tokenizer.json, if there is one, that yields what is known to be
    wrong before anything runs; it loads no torch and opens no large file. ``task_makes`` is what the task has to make
    for this stage to be of use; None: anything. A stage that is not ``usual`` runs where it is asked for by name.
    """

    name: str
    version: int
    run: str
    makes: str
    identity: Identity
    needs: Mapping[str, Need] = field(default_factory=dict)
    sections: tuple[str, ...] = ()
    settled: Settled = lambda recipe, inputs: recipe
    outside: Outside = lambda recipe, root: {}
    aside: tuple[str, ...] = ()
    check: str | None = None
    task_makes: str | None = None
    usual: bool = True


def _machine(recipe: Recipe, root: Path) -> Mapping[str, str]:
    return {"machine": load("trainwright.hardware.machine.facts:machine_digest", kind="function")()}


def _corpus(recipe: Recipe, root: Path) -> Mapping[str, str]:
    outside_digests = load("trainwright.stages.data.corpus.digests:outside_digests", kind="function")
    digests: Mapping[str, str] = outside_digests(recipe.data, cache=root / "corpus-digests.json")
    return digests


def _estimate(recipe: Recipe, root: Path) -> Mapping[str, str]:
    """Returns what a plan rests on before there is a dataset: the corpus's size, a known tokenizer, plug-ins' code.

    A family gives sizes that a recipe leaves out, a task says how a dataset is read.
    """
    size_bytes = corpus_bytes(recipe)
    facts = _code(_network_and_task(recipe))
    if size_bytes is not None:
        facts["corpus_bytes"] = str(size_bytes)
    if recipe.data.tokenizer.path is not None:
        facts["tokenizer"] = file_digest(local_path(recipe.data.tokenizer.path))
    return facts | shape_of_teacher(recipe)


def corpus_bytes(recipe: Recipe, *, remote: bool = True) -> int | None:
    """Returns the bytes of text in the recipe's corpus, from the sizes of its files.

    None where no length depends on them, and where only that of a validation does and the files are not here: a run
    can be planned on another machine than it runs on. Where not ``remote`` the network is never asked, and a corpus
    that is not here has no size.

    Raises:
        DataError: a path is missing, and the length of the run is in epochs.
    """
    needed = parse_duration(recipe.train.duration).unit == "epochs"
    if not needed and recipe.data.split.validation == 0:
        return None
    name = "corpus_bytes" if needed and remote else "corpus_bytes_here"
    size_bytes: int | None = load(f"trainwright.stages.data.corpus.size:{name}", kind="function")(recipe.data)
    return size_bytes


def _code(names: Mapping[str, str]) -> dict[str, str]:
    """Returns the digests of all code of those that are plug-ins, from their names by key of the recipe."""
    digests = {}
    for key, name in names.items():
        for part in code_of(name) if is_reference(name) else ():
            try:
                digests[f"code of {part}"] = source_digest(part)
            except RecipeError as error:
                raise error.at(key) from error
    return digests


def _network_and_task(recipe: Recipe) -> dict[str, str]:
    return {"model.family": recipe.model.family, "task.name": recipe.task.name}


def _trained_with(recipe: Recipe, root: Path) -> Mapping[str, str]:
    """Pretrained weights, a teacher's, and the code of plug-ins."""
    train = recipe.train
    rules = {"train.optimizer.name": train.optimizer.name, "train.schedule.name": train.schedule.name}
    return _code(_network_and_task(recipe) | rules) | weights_outside(recipe)


def _evaluated_with(recipe: Recipe, root: Path) -> Mapping[str, str]:
    """Plug-ins' code, questions, benchmarks; of labelled texts, whether the package is there that compares them."""
    code = _code(_network_and_task(recipe)) | questions_outside(recipe) | benchmarks_outside(recipe)
    if recipe.task.kind.needs != "documents-with-labels":
        return code
    return code | {"words": "scikit-learn" if installed("sklearn") else "none"}


def _exported_with(recipe: Recipe, root: Path) -> Mapping[str, str]:
    exporters = {f"export.formats.{number}": name for number, name in enumerate(recipe.export.names)}
    return _code({"model.family": recipe.model.family} | exporters)


def _in_tokens_of_base(recipe: Recipe, inputs: Mapping[str, Artifact]) -> Recipe:
    """Returns the recipe with the tokenizer of the base, whatever it says of training one; images have none."""
    if "base" not in inputs or recipe.data.images is not None:
        return recipe
    end_of_text, path = recipe.data.tokenizer.end_of_text, str(inputs["base"].file(TOKENIZER))
    tokenizer = TokenizerSection(kind="pretrained", path=path, end_of_text=end_of_text)
    return recipe.model_copy(update={"data": recipe.data.model_copy(update={"tokenizer": tokenizer})})


def _stage(name: str, *, identity: Identity, version: int = 1, needs: Sequence[Need] = (), **keys: Any) -> Stage:
    """Returns a stage whose roles are called like their kinds, and ``base``: a checkpoint to begin with, ``base``."""
    base: Need | None = keys.pop("base", None)
    return Stage(
        name=name,
        version=version,
        run=f"trainwright.stages.{name}:run",
        makes=KINDS[name],
        identity=identity,
        needs=({} if base is None else {"base": base}) | {need.kind: need for need in needs},
        **keys,
    )


_PLAN_AS_ADVICE = Need(kind="plan", files=())
_DATASET = Need(kind="dataset", files=DATASET_FILES)
_MODEL = Need(kind="checkpoint", files=MODEL_FILES)
_TOKENIZER = Need(kind="checkpoint", files=(TOKENIZER,), optional=True)
_ALL = [Need(kind=kind, optional=True) for kind in KINDS.values() if kind != "page"]

STAGES: Mapping[str, Stage] = {
    stage.name: stage
    for stage in (
        _stage("doctor", version=4, identity=lambda recipe, inputs: {}, outside=_machine),
        _stage(
            "plan",
            check="trainwright.stages.plan.check:problems",
            version=14,
            aside=("dataset",),
            identity=plan_identity,
            outside=_estimate,
            base=_TOKENIZER,
            settled=_in_tokens_of_base,
            needs=[Need(kind="machine")],
            sections=("model", "data", "task", "train", "plan"),
        ),
        _stage(
            "data",
            check="trainwright.stages.data.check:recipe_problems",
            version=3,
            identity=data_identity,
            base=_TOKENIZER,
            settled=_in_tokens_of_base,
            sections=("data",),
            outside=_corpus,
        ),
        _stage(
            "train",
            version=5,
            check="trainwright.stages.train.check:problems",
            identity=train_identity,
            base=replace(_MODEL, optional=True),
            needs=[_DATASET, _PLAN_AS_ADVICE],
            sections=("model", "data", "task", "train", "plan"),
            outside=_trained_with,
        ),
        _stage(
            "optimize",
            version=5,
            usual=False,
            check="trainwright.stages.train.check:problems",
            identity=optimize_identity,
            base=replace(_MODEL, optional=True),
            needs=[_DATASET, Need(kind="machine")],
            sections=("model", "data", "task", "train", "plan", "optimize"),
            outside=_trained_with,
        ),
        _stage(
            "evaluate",
            version=4,
            check="trainwright.stages.evaluate.check:problems",
            identity=evaluate_identity,
            needs=[replace(_MODEL, files=(*MODEL_FILES, "references.json")), _DATASET, _PLAN_AS_ADVICE],
            sections=("evaluate", "data", "task"),
            outside=_evaluated_with,
        ),
        _stage(
            "audit",
            version=2,
            identity=lambda recipe, inputs: {},
            needs=[Need(kind="plan"), Need(kind="checkpoint")],
        ),
        _stage(
            "export",
            version=2,
            check="trainwright.stages.export.check:problems",
            identity=export_identity,
            needs=[_MODEL],
            sections=("export",),
            outside=_exported_with,
        ),
        _stage(
            "serve",
            version=2,
            check="trainwright.stages.serve.check:problems",
            identity=serve_identity,
            task_makes="text",
            needs=[Need(kind="bundle")],
            sections=("serve",),
            outside=lambda recipe, root: _code(
                {"model.family": recipe.model.family, "serve.engine": recipe.serve.engine.name}
            ),
        ),
        _stage("report", identity=report_identity, needs=_ALL),
    )
}
"""In the order in which they run."""


def maker(kind: str) -> Stage:
    """Returns the stage that makes artefacts of this kind."""
    return next(stage for stage in STAGES.values() if stage.makes == kind)


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """A stage under a name; one recipe may have several steps of a stage.

    ``recipe`` is the recipe as this step sees it, ``inputs`` say by role what it takes, ``key`` is where the recipe
    lists it (``stages.1``; empty where it follows from other steps). ``written`` are the keys that steps laid over the
    recipe, the nearest step first: ``{"stages.1": {"train": {"duration": "5 steps"}}}``.
    """

    name: str
    stage: Stage
    recipe: Recipe
    inputs: Mapping[str, InputFrom] = field(default_factory=dict)
    key: str = ""
    written: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def placed(self, problem: TrainwrightError) -> TrainwrightError:
        """Returns the problem under the key of the step that wrote the value, where one did."""
        if isinstance(problem, RecipeErrors):
            return RecipeErrors(self.placed(each) for each in problem.problems)
        key = problem.where or ""
        for prefix, section in self.written.items():
            if _holds(section, key.split(".")):
                return problem.at(f"{prefix}.{key}")
        return problem

    @contextmanager
    def placing(self) -> Iterator[None]:
        """Raises what is raised as ``placed`` says."""
        try:
            yield
        except TrainwrightError as error:
            placed = self.placed(error)
            if placed is error:
                raise
            raise placed from error


def _holds(value: Any, parts: list[str]) -> bool:
    """Returns whether a tree of mappings and lists has a value under these parts of a key, or a name for a mapping."""
    for part in parts:
        if isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        elif isinstance(value, Mapping) and part in value:
            value = value[part]
        else:
            return isinstance(value, str)
    return True


def inputs_of(step: Step, done: Mapping[str, Artifact]) -> dict[str, Artifact]:
    """Returns the step's inputs by role, of those that are done."""
    inputs = {}
    for role, source in step.inputs.items():
        if isinstance(source, Path):
            inputs[role] = open_artifact(source)
        elif source in done:
            inputs[role] = done[source]
    return inputs


def upstream(line: Iterable[Step], name: str) -> tuple[Step, ...]:
    """Returns a step and all that it needs, in running order.

    Raises:
        RecipeError: there is no such step.
    """
    line = tuple(line)
    names = [step.name for step in line]
    if name not in names:
        raise RecipeError("no such step", **unknown(name, names))
    wanted = {name}
    for step in reversed(line):
        if step.name in wanted:
            wanted.update(source for source in step.inputs.values() if isinstance(source, str))
    return tuple(step for step in line if step.name in wanted)
