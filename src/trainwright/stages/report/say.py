"""Values as text: a field's name says its unit, as everywhere in the project."""

from __future__ import annotations

import math
from typing import Any

from trainwright.core.money import format_usd
from trainwright.core.units import format_bytes, format_count, format_seconds

UNKNOWN = "unknown"

_RATES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_WORDS = {
    "usd": "price",
    "lr": "learning rate",
    "mfu": "model FLOPs utilisation",
    "tokens_per_s": "speed",
    "images_per_s": "speed",
    "cpu": "CPU",
    "gpus": "GPUs",
    "os": "OS",
    "ffn": "feed-forward",
    "kv": "key/value",
    "url": "URL",
    "mlp": "MLP",
    "dp": "data-parallel",
    "muon": "Muon",
    "adamw": "AdamW",
    "python": "Python",
    "macro_f1": "macro F1",
    "memory_bytes_per_s": "memory bandwidth",
    "launch_s": "start of one operation",
    "clock_max_hz": "highest clock",
    "virtual": "virtual machine",
    "baseline_bytes": "process with torch loaded",
}


def value(name: str, item: Any) -> str:
    """Returns ``item`` with the unit that the end of ``name`` says; None is ``unknown``."""
    if item is None or item == "":
        return UNKNOWN
    if isinstance(item, bool):
        return "yes" if item else "no"
    if isinstance(item, (list, tuple)):
        return ", ".join(value(name, part) for part in item) or "none"
    if not isinstance(item, (int, float)):
        return str(item)
    return number(name, item)


def number(name: str, item: float) -> str:
    """Returns a number with the unit of its name."""
    if not math.isfinite(item):
        return UNKNOWN if math.isinf(item) else "not a number"
    if name.endswith("flops_per_s"):
        return rate(item, "FLOP/s")
    if name.endswith("_hz"):
        return rate(item, "Hz")
    if name.endswith("bytes_per_s"):
        return rate(item, "B/s")
    for unit in ("tokens", "images"):
        if name.endswith(f"{unit}_per_s"):
            return f"{count(item)} {unit}/s"
    if name.endswith("_usd") or name.startswith("usd"):
        return format_usd(item)
    if name.endswith("_bytes") or name == "bytes":
        return format_bytes(item)
    if name.endswith(("_s", "seconds")):
        return format_seconds(item) if item >= 0 else f"-{format_seconds(-item)}"
    if name.endswith(("mfu", "share", "_ratio", "busy")):
        return percent(item)
    return count(item)


def rate(item: float, unit: str) -> str:
    """Returns ``1.23 TFLOP/s``."""
    for scale, prefix in _RATES:
        if abs(item) >= scale:
            return f"{item / scale:.3g} {prefix}{unit}"
    return f"{item:.3g} {unit}"


def count(item: float) -> str:
    """Returns ``4,096``, ``1.5M``, ``0.0314``."""
    if abs(item) >= 1000 and not float(item).is_integer():
        item = round(item)
    return format_count(item)


def percent(share: float) -> str:
    """Returns ``42.3 %``."""
    return f"{100 * share:.3g} %"


def ratio(item: float | None) -> str:
    """Returns ``0.97×``; ``unknown`` where there is no finite ratio."""
    return UNKNOWN if item is None or not math.isfinite(item) else f"{item:.3g}×"


def title(name: str) -> str:
    """Returns a field's name as words, without its unit: ``disk_free_bytes`` is ``disk free``."""
    if name in _WORDS:
        return _WORDS[name]
    for suffix in ("_flops_per_s", "_bytes_per_s", "_bytes", "_hz", "_s", "_usd"):
        if name.endswith(suffix) and len(name) > len(suffix):
            name = name.removesuffix(suffix)
            break
    return " ".join(_WORDS.get(word, word) for word in name.split("_"))
