"""``Manifest``: what an artefact is, what it was made from, and the digest of every file in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from trainwright.core.frozen import dataclass

FORMAT = 3
"""Version of the manifest's own layout; since 2 it says its kind, since 3 the digest of its own bytes."""

KINDS: Mapping[str, str] = {
    "doctor": "machine",
    "plan": "plan",
    "data": "dataset",
    "train": "checkpoint",
    "optimize": "ladder",
    "evaluate": "evaluation",
    "audit": "audit",
    "export": "bundle",
    "serve": "answer",
    "report": "page",
}
"""What each stage makes: a stage names its inputs by kind, whichever stage made them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FileEntry:
    """One file of an artefact; ``path`` is relative, with forward slashes."""

    path: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """Written last and atomically: present means complete.

    ``kind`` says what the artefact is (a checkpoint, a dataset), ``stage`` which code made it.
    ``identity`` and ``inputs`` are what the fingerprint is made of; ``execution`` records how it was made (workers,
    machine, times) and never is; ``summary`` holds the few numbers a reader wants first.
    """

    kind: str
    stage: str
    stage_version: int
    fingerprint: str
    identity: Mapping[str, Any]
    inputs: Mapping[str, str]
    files: tuple[FileEntry, ...]
    summary: Mapping[str, Any]
    execution: Mapping[str, Any] = field(default_factory=dict)
    format: int = FORMAT
