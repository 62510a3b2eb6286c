"""A server for the command line: take the port, check and load the model, and wait for ``run``."""

from __future__ import annotations

import json
from pathlib import Path

from trainwright.artifact.store import MANIFEST, open_artifact
from trainwright.spec.sections.serve import ServeSection
from trainwright.stages.serve.server import Server, listen
from trainwright.stages.serve.service import load_service


def open_server(directory: Path, section: ServeSection, *, model_name: str, api_key: str | None) -> Server:
    """Returns a server that has its port and its model; ``run`` answers until Ctrl-C.

    Raises:
        MachineError: the port is in use, or the address is not this machine's.
        DataError: the model is missing, damaged, or not what its manifest says.
        RecipeError: no such engine, or the model asks for something that it does not support.
    """
    # The port first: a large model takes its time to load, only to find the port taken.
    bound = listen(section.host, section.port)
    try:
        verify_bundle(directory)
        service = load_service(
            directory,
            model_name=model_name,
            max_concurrent=section.max_concurrent,
            max_waiting=section.max_waiting,
            engine=section.engine,
            api_key=api_key,
        )
    except BaseException:
        bound.close()
        raise
    return Server(service, bound, allowed_hosts=(section.host, *section.allowed_hosts))


def verify_bundle(directory: Path) -> None:
    """Compares the files of a model's directory with the manifest in it (a trained artefact) or above it (an export).

    A directory from elsewhere has neither, and is served as it is.

    Raises:
        DataError: a file is missing or differs; names it.
    """
    here = directory.resolve()
    for root in (here, here.parent):
        if _is_manifest(root / MANIFEST):
            artifact = open_artifact(root)
            names = {entry.path for entry in artifact.manifest.files if here in (root / entry.path).parents}
            artifact.verify(names)


def _is_manifest(path: Path) -> bool:
    """Returns whether a file is a manifest of ours, or a damaged one: other programs write files of this name too.

    One of two keys that only ours have tells: where a byte of the other is wrong, opening it says so.
    """
    if not path.is_file():
        return False
    try:
        record = json.loads(path.read_bytes())
    except ValueError:
        return True
    return isinstance(record, dict) and not record.keys().isdisjoint(("fingerprint", "stage_version"))
