from __future__ import annotations

import pytest
from pydantic import ValidationError

from trainwright.spec.sections.corpus.pairs import DocstringPairsSource, PairsSource


def test_negatives_and_their_key_go_together() -> None:
    assert (
        PairsSource(kind="pairs", paths=("x",)).texts == DocstringPairsSource(kind="python-docstring-pairs").texts == 2
    )
    assert PairsSource(kind="pairs", paths=("x",), negative_key="n", negatives=3).texts == 5
    for keys in ({"negative_key": "n"}, {"negatives": 1}):
        with pytest.raises(ValidationError, match="negative_key and negatives go together"):
            PairsSource(kind="pairs", paths=("x",), **keys)
