"""A write ends complete, or with the error of whoever could not write; ``tests/parallel`` has several ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwright.artifact.checkpoint.index import Index
from trainwright.core.errors import MachineError
from trainwright.stages.train.saving.writing import Save, Writing, drop, file_of


def save(tmp_path, *, exchange=lambda value: [value], small=lambda folder: None) -> Save:
    index = Index(step=1, ranks=1, layout={}, loss=None, writer="0", files={}, model={}, optimizer={})
    return Save(
        final=tmp_path / "step-00000001",
        rank=0,
        index=index,
        copies=[],
        exchange=exchange,
        small=small,
        complete=list,
        elsewhere=None,
    )


def test_a_folder_gets_its_name_in_the_end(tmp_path) -> None:
    seen: list[list[str]] = []

    def small(folder) -> None:
        seen.append(sorted(path.name for path in tmp_path.iterdir()))
        (folder / "state.json").write_text("{}")

    assert save(tmp_path, small=small).run().name == "step-00000001"
    assert [[name.startswith(".step-00000001-") for name in names] for names in seen] == [[True]]
    names = sorted(path.name for path in (tmp_path / "step-00000001").iterdir())
    assert names == ["checkpoint.json", "model.safetensors", "optimizer.safetensors", "state.json"]


def test_what_another_rank_could_not_do_is_raised_here(tmp_path) -> None:
    error = MachineError("the disk is full")
    with pytest.raises(MachineError, match="disk is full"):
        save(tmp_path, exchange=lambda value: [value, error]).run()
    assert [path.name.startswith(".step-00000001-") for path in tmp_path.iterdir()] == [True]


def test_what_a_former_attempt_goes_on_writing_is_in_no_later_checkpoint(tmp_path) -> None:
    """A host may be taken for gone in the middle of a write, and wake while the others write that step again."""
    left: list[Path] = []

    def stopped(folder) -> None:
        left.append(folder)
        raise MachineError("gone")

    with pytest.raises(MachineError, match="gone"):
        save(tmp_path, small=stopped).run()
    again = save(tmp_path, small=lambda folder: (left[0] / "model-00002-of-00002.safetensors").touch())
    names = sorted(path.name for path in again.run().iterdir())
    assert names == ["checkpoint.json", "model.safetensors", "optimizer.safetensors"]


def test_what_the_system_refuses_is_told_to_the_others(tmp_path) -> None:
    told: list[object] = []

    def exchange(value: object) -> list[object]:
        told.append(value)
        return [value]

    def small(folder) -> None:
        raise OSError(74, "Bad message")

    with pytest.raises(MachineError, match="cannot write the checkpoint"):
        save(tmp_path, exchange=exchange, small=small).run()
    assert isinstance(told[-1], MachineError)


def test_the_others_are_told_of_a_defect_which_stays_one_here(tmp_path) -> None:
    told: list[object] = []

    def exchange(value: object) -> list[object]:
        told.append(value)
        return [value]

    def small(folder) -> None:
        raise LookupError("a defect")

    with pytest.raises(LookupError, match="a defect"):
        save(tmp_path, exchange=exchange, small=small).run()
    assert isinstance(told[-1], MachineError)
    assert "rank 0 failed while it wrote the checkpoint (seen LookupError: a defect" in str(told[-1])


def test_whoever_waits_gets_what_ended_the_thread() -> None:
    with pytest.raises(KeyError, match="nothing"):
        Writing(lambda: {}["nothing"]).wait()


def test_a_deleted_checkpoint_loses_its_name_first(tmp_path, monkeypatch) -> None:
    (tmp_path / "step-00000001").mkdir()
    seen: list[str] = []
    monkeypatch.setattr("shutil.rmtree", lambda path: seen.append(path.name))
    drop(tmp_path / "step-00000001")
    assert seen == [".step-00000001.old"]


def test_one_process_writes_a_bundle() -> None:
    assert file_of("model", 0, 1) == "model.safetensors"
    assert file_of("optimizer", 2, 16) == "optimizer-00003-of-00016.safetensors"
