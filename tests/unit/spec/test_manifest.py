"""The manifest's parts survive JSON."""

from __future__ import annotations

from trainwright.core.records import from_json, to_json
from trainwright.spec.manifest import FORMAT, FileEntry, Manifest


def test_round_trip() -> None:
    manifest = Manifest(
        kind="dataset",
        stage="data",
        stage_version=2,
        fingerprint="ab",
        identity={"a": [1, {"b": None}]},
        inputs={"corpus": "cd"},
        files=(FileEntry(path="x/y", size_bytes=3, sha256="ef"),),
        summary={"tokens": 5},
    )
    assert from_json(Manifest, to_json(manifest), where="m") == manifest
    assert manifest.format == FORMAT
