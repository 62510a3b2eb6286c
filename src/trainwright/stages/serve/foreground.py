"""A server for the command line: load the model, take the port, and wait for ``run``."""

from __future__ import annotations

from pathlib import Path

from trainwright.stages.serve.server import Server, listen
from trainwright.stages.serve.service import load_service


def open_server(
    directory: Path,
    *,
    model_name: str,
    host: str,
    port: int,
    max_concurrent: int,
    max_waiting: int,
    api_key: str | None,
) -> Server:
    """A server that has its port and its model; ``run`` answers until Ctrl-C.

    Raises:
        MachineError: the port is in use, or the address is not this machine's.
        DataError: the model is missing or damaged.
        RecipeError: the model asks for something that is not supported.
    """
    # The port first: a large model takes its time to load, only to find the port taken.
    bound = listen(host, port)
    try:
        service = load_service(
            directory, model_name=model_name, max_concurrent=max_concurrent, max_waiting=max_waiting, api_key=api_key
        )
    except BaseException:
        bound.close()
        raise
    return Server(service, bound)
