from __future__ import annotations

import pytest


@pytest.fixture
def tree(tmp_path):
    root = tmp_path / "tree"
    for name in ("b.txt", "a.md", "deep/c.txt", "deep/.hidden.txt", ".git/config.txt", "deep/more/d.txt"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return root
