"""A corpus's size is that of its files; compressed ones count for more."""

from __future__ import annotations

import gzip

from trainwright.stages.data.corpus.size import EXPANSION, corpus_bytes


def test_the_sizes_of_the_files_add_up(section, tmp_path) -> None:
    (tmp_path / "a.txt").write_text("x" * 1000)
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"y" * 1000))
    packed = (tmp_path / "b.txt.gz").stat().st_size
    paths = [str(tmp_path / "a.txt"), str(tmp_path / "b.txt.gz")]
    assert corpus_bytes(section({"kind": "files", "paths": paths})) == 1000 + EXPANSION * packed
