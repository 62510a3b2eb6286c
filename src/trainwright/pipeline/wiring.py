"""The list of steps of a recipe, wired by role and kind.

A step that goes on from another one sees the recipe as that one does, with its own keys laid over. An input that a step
does not name is

1. what the step that it goes on from is made from (``evaluate`` from ``tuned`` takes the dataset of ``tuned``),
2. else the only step before it that makes this kind,
3. else made for it by the stage that makes this kind, under the same recipe.

The first two do not hold where the step's own keys would change that input: a fine-tuning with ``data`` keys has a
dataset made for it, in the tokens of its base.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from trainwright.artifact.store import open_artifact
from trainwright.core.errors import DataError, RecipeError, RecipeErrors, TrainwrightError
from trainwright.core.paths import local_path
from trainwright.core.spelling import did_you_mean, with_article
from trainwright.pipeline.graph import STAGES, InputFrom, Need, Stage, Step, maker, upstream
from trainwright.pipeline.overlay import laid_over
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.steps import StepSection


def wire(recipe: Recipe, listed: tuple[StepSection, ...]) -> tuple[Step, ...]:
    """Returns the listed steps and those made for them, in running order.

    Raises:
        RecipeErrors: what is wrong with the list; ``where`` are keys such as ``stages.1.from``.
    """
    return _Wiring(recipe.model_copy(update={"stages": None}), listed).steps()


class _Wiring:
    """The steps that are wired so far, and what was wrong with the others."""

    def __init__(self, recipe: Recipe, listed: tuple[StepSection, ...]) -> None:
        self.recipe, self.listed = recipe, listed
        self.titles = [section.title for section in listed]
        self.done: dict[str, Step] = {}
        self.failed: set[str] = set()

    def steps(self) -> tuple[Step, ...]:
        """Returns all steps.

        Raises:
            RecipeErrors: what is wrong with the list.
        """
        problems: list[TrainwrightError] = []
        for index, section in enumerate(self.listed):
            try:
                _check_name(f"stages.{index}", section, self.titles[:index])
                self._add(f"stages.{index}", section)
            except TrainwrightError as error:
                problems += error.problems if isinstance(error, RecipeErrors) else (error,)
                self.failed.add(section.title)
        if problems:
            raise RecipeErrors(problems)
        return tuple(self.done.values())

    def _add(self, key: str, section: StepSection) -> None:
        stage = STAGES[section.stage]
        chosen = self._chosen(f"{key}.from", stage, section)
        recipe = self._recipe(key, section, chosen)
        before = [self.done[source] for source in chosen.values() if isinstance(source, str)]
        written = {key: section.overrides} | (dict(before[0].written) if before else {})
        step = Step(name=section.title, stage=stage, recipe=recipe, key=key, written=written)
        inputs = self._inputs(step, chosen, frozenset(section.overrides))
        self.done[section.title] = replace(step, inputs=inputs)

    def _chosen(self, key: str, stage: Stage, section: StepSection) -> dict[str, InputFrom]:
        """Returns the inputs that the step names, by role."""
        asked = section.goes_on_from
        if asked is None:
            return {}
        if isinstance(asked, str):
            source, kind = self._input_from(key, asked)
            roles = [role for role, need in stage.needs.items() if need.kind == kind]
            if not roles:
                raise _wrong_kind(key, stage, asked, kind)
            return {roles[0]: source}
        chosen: dict[str, InputFrom] = {}
        for role, text in asked.items():
            if role not in stage.needs:
                raise RecipeError(
                    "{name} has no such input",
                    where=f"{key}.{role}",
                    expected=f"one of {', '.join(stage.needs)}" if stage.needs else "no from: it takes nothing",
                    fix=did_you_mean(role, list(stage.needs)),
                    name=stage.name,
                )
            chosen[role], kind = self._input_from(f"{key}.{role}", text)
            if kind != stage.needs[role].kind:
                wanted = stage.needs[role].kind
                raise RecipeError(
                    "an input of another kind", where=f"{key}.{role}", seen=kind, expected=with_article(wanted)
                )
        return chosen

    def _input_from(self, key: str, text: str) -> tuple[InputFrom, str]:
        """Returns what a recipe's text names, and its kind."""
        if "/" in text:
            path = local_path(text)
            try:
                return path, open_artifact(path).manifest.kind
            except DataError as error:
                raise error.at(key, seen=text if error.seen is None else f"{text}: {error.seen}") from error
        if text in self.done:
            return text, self.done[text].stage.makes
        if text in self.failed:
            raise RecipeErrors(())  # its own problem is reported where it stands
        if text in self.titles:
            raise RecipeError("this step comes later", where=key, seen=text, fix="put it before this one")
        names = list(self.done)
        raise RecipeError(
            "no such step",
            where=key,
            seen=text,
            expected=f"one of {', '.join(names) or 'the steps before this one'}, or a path with a / in it",
            fix=did_you_mean(text, names),
        )

    def _recipe(self, key: str, section: StepSection, chosen: Mapping[str, InputFrom]) -> Recipe:
        """Returns the recipe as the step sees it."""
        stage = STAGES[section.stage]
        for name in section.overrides:
            if name not in stage.sections:
                whose = ", ".join(stage.sections) or "none"
                raise RecipeError(
                    "{name} does not read this section", where=f"{key}.{name}", expected=whose, name=stage.name
                )
        if "dataset" in chosen and section.data is not None:
            raise RecipeError("a dataset is named, so its section has no effect", where=f"{key}.data", fix="drop one")
        self._check_tokenizer(key, section, chosen)
        steps_before = {role: self.done[source] for role, source in chosen.items() if isinstance(source, str)}
        recipe = next((step.recipe for step in steps_before.values()), self.recipe)
        if "dataset" in steps_before:
            recipe = recipe.model_copy(update={"data": steps_before["dataset"].recipe.data})
        if "base" in chosen:
            if "init_from" in (section.model or {}):
                raise RecipeError(
                    "the weights come from the step before", where=f"{key}.model.init_from", fix="drop it"
                )
            recipe = recipe.model_copy(update={"model": recipe.model.model_copy(update={"init_from": None})})
        return laid_over(recipe, section.overrides, at=key) if section.overrides else recipe

    def _check_tokenizer(self, key: str, section: StepSection, chosen: Mapping[str, InputFrom]) -> None:
        """Refuses keys of a tokenizer where the tokens are those of the checkpoint that the step goes on from."""
        needs = STAGES[section.stage].needs
        keys = (section.data or {}).get("tokenizer")
        if not isinstance(keys, Mapping) or not any(needs[role].kind == "checkpoint" for role in chosen):
            return
        for name in keys:
            if name != "end_of_text":
                raise RecipeError(
                    "the tokenizer is that of the step before", where=f"{key}.data.tokenizer.{name}", fix="drop it"
                )

    def _inputs(self, step: Step, chosen: Mapping[str, InputFrom], changed: frozenset[str]) -> dict[str, InputFrom]:
        """Returns what to take for each role that the stage cannot do without, and for others that there is one for."""
        inputs: dict[str, InputFrom] = {}
        for role, need in step.stage.needs.items():
            source = chosen.get(role)
            if source is None and role == need.kind:
                source = None if changed & set(maker(need.kind).sections) else self._nearest(step, need, chosen)
                if source is None and not need.optional:
                    source = self._made(step, need.kind, chosen)
            if source is not None:
                inputs[role] = source
        return inputs

    def _nearest(self, step: Step, need: Need, chosen: Mapping[str, InputFrom]) -> str | None:
        """Returns the step of a kind that the named inputs are made from, or one in the list that follows from them."""
        before = [source for source in chosen.values() if isinstance(source, str)]
        for name in before:
            above = [each for each in upstream(self.done.values(), name) if each.stage.makes == need.kind]
            if above:
                return above[-1].name
        listed = [each.name for each in self.done.values() if each.key and each.stage.makes == need.kind]
        if before:
            listed = [name for name in listed if self._follows(name, before[0])]
        if len(listed) > 1 and not need.optional:
            raise RecipeError(
                "several steps make {a_kind}",
                where=step.key,
                seen=", ".join(listed),
                fix=f"say which, for example from: {listed[-1]}",
                a_kind=with_article(need.kind),
            )
        return listed[-1] if listed else None

    def _follows(self, name: str, before: str) -> bool:
        return any(step.name == before for step in upstream(self.done.values(), name))

    def _made(self, step: Step, kind: str, chosen: Mapping[str, InputFrom]) -> str:
        """Returns a step that nobody listed, under the same recipe; an equal one is taken where there is one."""
        stage = maker(kind)
        model = chosen.get("base", chosen.get("checkpoint"))
        # A dataset is made, and a run planned, in the tokens of the model that is gone on from.
        tokens_of = {"base": model} if "base" in stage.needs and model is not None else {}
        inputs = self._inputs(replace(step, stage=stage), tokens_of, frozenset(stage.sections))
        for other in self.done.values():
            same = all(getattr(other.recipe, name) == getattr(step.recipe, name) for name in stage.sections)
            if other.stage is stage and other.inputs == inputs and same:
                return other.name
        free = stage.name not in self.done and stage.name not in self.titles
        name = stage.name if free else f"{step.name}.{stage.name}"
        self.done[name] = Step(name=name, stage=stage, recipe=step.recipe, inputs=inputs, written=step.written)
        return name


def _check_name(key: str, section: StepSection, earlier: list[str]) -> None:
    name = section.title
    if name in earlier:
        other = f"stages.{earlier.index(name)}"
        raise RecipeError("two steps have this name", where=f"{key}.name", seen=name, fix=f"rename it, or {other}")
    if name in STAGES and name != section.stage:
        raise RecipeError("another stage has this name", where=f"{key}.name", seen=name, fix="choose another name")


def _wrong_kind(key: str, stage: Stage, text: str, kind: str) -> RecipeError:
    kinds = ", ".join(dict.fromkeys(need.kind for need in stage.needs.values())) or "nothing"
    between = [other.name for other in STAGES.values() if any(need.kind == kind for need in other.needs.values())]
    wanted = {need.kind for need in stage.needs.values()}
    bridge = next((name for name in between if STAGES[name].makes in wanted and name != stage.name), None)
    fix = f"put a step {{stage: {bridge}, from: {text}}} between them" if bridge and "/" not in text else None
    return RecipeError(
        "{name} takes {kinds}", where=key, seen=f"{text}, {with_article(kind)}", fix=fix, name=stage.name, kinds=kinds
    )
