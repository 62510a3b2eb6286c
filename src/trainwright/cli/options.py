"""The option that sets each field: the planner speaks of fields, the command line alone of options.

A text of the planner names a field in backquotes (``change `batch_tokens` ``), an error carries it as ``field``; what
is printed has the option in its place (``change --batch``).
"""

from __future__ import annotations

from trainwright.core.errors import RecipeError, TrainwrightError
from trainwright.core.spelling import REMARK, foreign_characters

OPTIONS = {
    "model": "--model",
    "on": "--on",
    "cluster": "--on",
    "tokens": "--tokens",
    "total_tokens": "--tokens",
    "steps": "--tokens",
    "batch_tokens": "--batch",
    "sequence_tokens": "--sequence",
    "precision": "--precision",
    "optimizer": "--optimizer",
    "states": "--states",
    "moments": "--moments",
    "fused_loss": "--fused-loss",
    "update_in_backward": "--update-in-backward",
    "paged_moments": "--paged-moments",
    "activation_offload": "--activation-offload",
    "expert_imbalance": "--expert-imbalance",
    "further_layers": "--mtp",
    "recompute": "--recompute",
    "method": "--method",
    "task": "--task",
    "examples": "--examples",
    "epochs": "--epochs",
    "example_tokens": "--example-tokens",
    "data_gib": "--data-gib",
    "packing": "--packing",
    "rank": "--rank",
    "targets": "--targets",
    "stack": "--stack",
    "layout": "--layout",
    "references": "--calibrate",
    "calibrate": "--calibrate",
    "preset": "--preset",
    "scale_up": "--scale-up",
    "scale_out": "--scale-out",
    "rails": "--rails",
    "clouds": "--cloud",
    "regions": "--region",
    "devices": "--devices",
    "price_kind": "--price-kind",
    "price": "--price",
    "flops_per_s": "--rate",
    "explain": "--explain",
    "sweep": "--sweep",
    "vendor": "--vendor",
    "origins": "--from",
    "have": "--have",
    "have_usd_per_device_hour": "--have-price",
    "have_bought_usd": "--have-bought",
    "have_years": "--have-years",
    "usd_per_kwh": "--kwh-price",
    "price_kinds": "--price-kinds",
    "most_devices": "--most-devices",
    "budget_usd": "--budget",
    "budget": "--budget",
    "compute": "--compute",
    "params": "--params",
    "deadline_s": "--deadline",
    "batch_sequences": "--batch-size",
    "weights": "--precision",
    "workspace": "--workspace",
    "out": "--out",
    "max_concurrent": "--max-concurrent",
    "engine": "--engine",
    "data": "--data",
    "text": "--text",
    "label": "--label",
    "out_file": "--out-file",
    "force": "--force",
}
"""Fields of questions, run specifications, workloads and servers, places to write to, and the options that set them."""


def in_options(error: TrainwrightError) -> TrainwrightError:
    """Returns the error in the words of the command line; look-alikes in what a user wrote are named."""
    named = error.renamed(OPTIONS)
    if not isinstance(named, RecipeError) or REMARK in str(named):
        return named
    remark = foreign_characters(named.seen or named.what)
    return named if remark is None else named.with_fix("; ".join(filter(None, (named.fix, remark))))
