"""A stage's summary in one line: the few numbers that answer what the stage was run for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trainwright.core.units import format_bytes, format_count, format_seconds
from trainwright.render.numbers import measured
from trainwright.render.results.audit import difference

Phrase = Callable[[Any], str]

LONGEST_TEXT, MOST_VALUES = 24, 6
"""Most values that the line of a stage without phrases shows."""


def summary_line(stage: str, summary: Mapping[str, Any]) -> str:
    """Returns what the stage found or made, as phrases separated by commas.

    Where no phrase is of these values (a plug-in's stage, or a plug-in's metrics), the first short ones are shown by
    name. A value that is absent, as in an artefact of an earlier version, or None, leaves its phrase out.
    """
    phrases = PHRASES.get(stage, ())
    told = [phrase(summary[key]) for key, phrase in phrases if summary.get(key) is not None]
    if stage == "train" and summary.get("bits_per_byte") is None:  # another task, in its own words
        validated = {key: value for key, value in summary.items() if key.startswith("validation_")}
        told += [f"{key.replace('_', ' ')} {measured(value)}" for key, value in validated.items() if value is not None]
    return ", ".join(told or _plain(summary))


def _plain(summary: Mapping[str, Any]) -> list[str]:
    values = {
        key.replace("_", " "): format_count(value) if isinstance(value, (int, float)) else value
        for key, value in summary.items()
        if not isinstance(value, bool) and isinstance(value, (int, float, str)) and _is_short(value)
    }
    return [f"{name} {value}" for name, value in values.items()][:MOST_VALUES]


def _is_short(value: int | float | str) -> bool:
    return not isinstance(value, str) or (len(value) <= LONGEST_TEXT and "\n" not in value)


def _counted(noun: str) -> Phrase:
    return lambda value: f"{format_count(value)} {noun}" + ("" if value == 1 else "s")


def _form(template: str, form: Callable[[Any], str]) -> Phrase:
    return lambda value: template.format(form(value))


def _flops(value: float) -> str:
    return f"{value / 1e12:.3g} TFLOP/s" if value >= 1e12 else f"{value / 1e9:.3g} GFLOP/s"


PHRASES: Mapping[str, tuple[tuple[str, Phrase], ...]] = {
    "doctor": (
        ("cores", _counted("core")),
        ("memory_bytes", format_bytes),
        ("matmul_fp32_flops_per_s", _form("fp32 {}", _flops)),
        ("matmul_bf16_flops_per_s", _form("bf16 {}", _flops)),
        ("findings", _counted("finding")),
    ),
    "plan": (
        ("fits", lambda fits: "fits in memory" if fits else "does not fit in memory"),
        ("memory_bytes", format_bytes),
        ("seconds", format_seconds),
        ("precision", str),
        ("micro_batch", _form("micro batch {}", format_count)),
    ),
    "data": (
        ("documents", _counted("document")),
        ("bytes", format_bytes),
        ("tokens", lambda splits: f"{format_count(sum(splits.values()))} tokens"),
        ("vocabulary", _form("vocabulary {}", format_count)),
        ("images", lambda splits: f"{format_count(sum(splits.values()))} images"),
        ("classes", _form("{} classes", format_count)),
    ),
    "train": (
        ("parameters", _counted("parameter")),
        ("tokens", _counted("token")),
        ("images", _counted("image")),
        ("passes", _form("{} passes over the data", "{:.3g}".format)),
        ("train_loss", _form("loss {}", "{:.3f}".format)),
        ("bits_per_byte", _form("validation {} bits per byte", "{:.3f}".format)),
        ("weights", _form("of {} weights", str)),
        ("left_out", _form("{} left out", str)),
        ("left_out_or_rolled_back", _form("{} left out or rolled back", _counted("update"))),
        ("stopped_early", _form("stopped early at {}", str)),
        ("result_step", _form("with the weights of step {}", "{:,}".format)),
        ("tokens_per_s", _form("{} tokens/s", "{:,.0f}".format)),
        ("images_per_s", _form("{} images/s", "{:,.0f}".format)),
        ("on", _form("on {}", str)),
    ),
    "evaluate": (
        ("test_bits_per_byte", _form("test {} bits per byte", "{:.3f}".format)),
        ("validation_bits_per_byte", _form("validation {} bits per byte", "{:.3f}".format)),
        ("test_accuracy", _form("test accuracy {}", "{:.1%}".format)),
        ("test_macro_f1", _form("macro F1 {}", "{:.3f}".format)),
        ("validation_accuracy", _form("validation accuracy {}", "{:.1%}".format)),
        ("test_recall_at_1", _form("test recall at 1 {}", "{:.1%}".format)),
        ("validation_recall_at_1", _form("validation recall at 1 {}", "{:.1%}".format)),
        ("questions_exact_match", _form("{} of the questions right", "{:.1%}".format)),
    ),
    "audit": (
        ("seconds_ratio", _form("training time {} against the plan", difference)),
        (
            "time_within_range",
            lambda inside: "inside the predicted range" if inside else "outside the predicted range",
        ),
        ("memory_ratio", _form("peak memory {}", difference)),
    ),
    "export": (
        ("formats", ", ".join),
        ("dtype", str),
        ("parameters", _counted("parameter")),
        ("logit_difference", _form("logits differ by {} after reading back", "{:.2g}".format)),
    ),
    "serve": (
        ("tokens_per_s", _form("{} tokens/s", "{:,.0f}".format)),
        ("time_to_first_token_s", _form("first token after {}", format_seconds)),
    ),
    "report": (("file", str),),
}
"""By stage: a key of its summary, and the phrase that its value is written in; in the order of the line."""
