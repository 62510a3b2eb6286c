"""A neighbour is one to go on from where its index is right and its files are of their sizes."""

from __future__ import annotations

from trainwright.artifact.checkpoint.neighbours import newest_beside, whole_by_size


def test_the_newest_that_is_whole_is_taken(make, tensors, tmp_path) -> None:
    paths = [make(tmp_path / f"step-0000000{step}", tensors) for step in (1, 2, 3, 4)]
    assert newest_beside(paths[3]) == paths[2] and newest_beside(paths[0]) == paths[3]
    (paths[2] / "model-0.safetensors").unlink()
    assert newest_beside(paths[3]) == paths[1]
    (paths[1] / "checkpoint.json").write_text("[]")
    assert newest_beside(paths[3]) == paths[0]
    with (paths[0] / "model-0.safetensors").open("ab") as file:
        file.write(b" ")
    assert newest_beside(paths[3]) is None
    assert [whole_by_size(path) for path in paths] == [False, False, False, True]


def test_an_index_that_somebody_changed_is_not_right(make, tensors, tmp_path) -> None:
    path = make(tmp_path / "step-00000001", tensors)
    index = path / "checkpoint.json"
    index.write_text(index.read_text().replace('"step":', '"step": 1', 1))
    assert not whole_by_size(path)
