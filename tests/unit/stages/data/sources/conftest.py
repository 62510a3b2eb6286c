from __future__ import annotations

import pytest

from trainwright.stages.data.corpus.digests import hash_file
from trainwright.stages.data.corpus.documents import raw_documents
from trainwright.stages.data.corpus.entries import CorpusFile, FileRange


def _read(path, section, **span):
    file = CorpusFile(source=0, name=path.name, location=str(path), size_bytes=0, version="")
    return list(raw_documents(FileRange(file=hash_file(file), **span), section))


@pytest.fixture(scope="session")
def read():
    """Reads a file, or a range of it, as a source of this section does."""
    return _read


@pytest.fixture(scope="session")
def written():
    """Writes a file and returns its path."""

    def write(path, data):
        path.write_bytes(data)
        return path

    return write
