"""Which parameters a recipe treats by their names: groups with a rate and a decay of their own, or frozen ones.

A parameter is trained where it has ``requires_grad``: whoever freezes one says it there, and every optimizer takes the
others alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from trainwright.core.errors import RecipeError
from trainwright.model.network import Network
from trainwright.spec.sections.updates.optimizer import GroupSection
from trainwright.spec.summary import ParameterGroup

KEY = "train.optimizer.groups"
NEAREST = 3


def chosen(name: str, groups: Sequence[GroupSection]) -> int | None:
    """Returns the place of the first group that a parameter's name matches; None where none does."""
    return next((place for place, group in enumerate(groups) if fnmatchcase(name, group.match)), None)


def freeze(network: Network, groups: Sequence[GroupSection]) -> None:
    """Takes parameters of frozen groups out of training; ``network`` is whole.

    Raises:
        RecipeError: a group has no parameter, or none that is trained; or none is left to train.
    """
    names = [name for name, _ in network.named_parameters()]
    able = network.trained()
    taken = {name: chosen(name, groups) for name in names}
    for place, group in enumerate(groups):
        if place not in taken.values():
            raise RecipeError(
                "no parameter is left for this group",
                where=f"{KEY}.{place}.match",
                seen=repr(group.match),
                expected="a pattern of names, of which the nearest are {nearest}",
                fix="earlier groups come first" if any(fnmatchcase(name, group.match) for name in names) else None,
                nearest=", ".join(get_close_matches(group.match, names, n=NEAREST, cutoff=0.0)),
            )
        if not group.frozen and not any(taken[name] == place for name in able):
            raise RecipeError(
                "no parameter of this group is trained",
                where=f"{KEY}.{place}.match",
                seen=repr(group.match),
                expected="a pattern of trained ones, of which the nearest are {nearest}",
                nearest=", ".join(get_close_matches(group.match, able, n=NEAREST, cutoff=0.0)),
            )
    for name, parameter in network.named_parameters():
        group_of = taken[name]
        if group_of is not None and groups[group_of].frozen:
            parameter.requires_grad_(False)
    if not network.trained():
        raise RecipeError("every parameter is frozen", where=KEY, expected="some that are trained")


def regroup(optimizer: Optimizer, names: dict[Tensor, str], groups: Sequence[GroupSection]) -> None:
    """Leaves an optimizer the parameters that are trained, and gives those of a group its rate and decay.

    A group whose rate is its own is logged as ``<name of the rate>/<number of the group, from 1>``.

    Args:
        optimizer: over any parameters.
        names: of them.
        groups: of the recipe.
    """
    made: list[dict[str, Any]] = []
    for group in optimizer.param_groups:
        parts: dict[int | None, list[Tensor]] = {}
        for parameter in group["params"]:
            if parameter.requires_grad:
                name = names.get(parameter)
                parts.setdefault(None if name is None else chosen(name, groups), []).append(parameter)
        for place, members in parts.items():
            made.append(group | {"params": members, "place": place} | _own(group, groups, place))
    optimizer.param_groups[:] = made


def _own(group: dict[str, Any], groups: Sequence[GroupSection], place: int | None) -> dict[str, Any]:
    """Returns what a group of the recipe says otherwise than a torch group."""
    if place is None:
        return {}
    section = groups[place]
    own: dict[str, Any] = {}
    if section.lr is not None:
        peak = section.peak(group.get("peak_lr", group["lr"]))
        own |= {"lr": peak, "peak_lr": peak, "rate": f"{group.get('rate', 'train/lr')}/{place + 1}"}
    if section.weight_decay is not None:
        if "weight_decay" not in group:
            raise RecipeError("this optimizer has no weight decay", where=f"{KEY}.{place}.weight_decay")
        own["weight_decay"] = section.weight_decay
    return own


def table(network: Network, members: Sequence[Optimizer], groups: Sequence[GroupSection]) -> list[ParameterGroup]:
    """Returns who got what, of a whole network: the recipe's groups in order, then the others."""
    names = {parameter: name for name, parameter in network.named_parameters()}
    rows: dict[tuple[int | None, str, float | None, float | None], list[Tensor]] = {}
    for optimizer in members:
        for group in optimizer.param_groups:
            key = (group["place"], type(optimizer).__name__, group["peak_lr"], group.get("weight_decay"))
            rows.setdefault(key, []).extend(group["params"])
    for parameter, name in names.items():
        if not parameter.requires_grad:
            rows.setdefault((chosen(name, groups), "", None, None), []).append(parameter)
    ordered = sorted(rows.items(), key=lambda row: len(groups) if row[0][0] is None else row[0][0])
    return [
        ParameterGroup(
            match="" if place is None else groups[place].match,
            rule=rule,
            tensors=len(parameters),
            parameters=sum(parameter.numel() for parameter in parameters),
            lr=lr,
            weight_decay=decay,
        )
        for (place, rule, lr, decay), parameters in ordered
    ]


def lines(rows: Sequence[ParameterGroup]) -> Iterator[str]:
    """Yields a line for each group: who got what."""
    for row in rows:
        what = "frozen: no gradient, no state"
        if row.lr is not None:
            decay = "" if row.weight_decay is None else f", weight decay {row.weight_decay:g}"
            what = f"{row.rule} with a peak rate of {row.lr:g}{decay}"
        who = f"parameters {row.match!r}" if row.match else "other parameters"
        yield f"{who}: {row.tensors:,} tensors of {row.parameters:,} numbers, {what}"
