"""What goes elsewhere is there when its index is; a place that refuses is one line, and ends no copying for good."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import fsspec
import numpy as np
import pytest

from fixtures.checkpoints import write_checkpoint
from trainwright.artifact.checkpoint.reader import CheckpointReader
from trainwright.core.errors import MachineError, RecipeError
from trainwright.stages.train.saving.elsewhere import Elsewhere, Mirror, place_problem


def test_what_has_no_index_is_not_there(tmp_path) -> None:
    url = f"memory://{uuid4().hex}"
    elsewhere = Elsewhere(url, tmp_path / "train-1")
    (tmp_path / "state.json").write_text("{}")
    elsewhere.put(tmp_path, "step-00000009", ["state.json"])
    assert elsewhere.fetch(tmp_path / "checkpoints", after=-1) is None


def test_an_unknown_protocol_is_refused(tmp_path) -> None:
    with pytest.raises(RecipeError, match="train.exec.checkpoint_to"):
        Elsewhere("nowhere://bucket", tmp_path)


def test_a_place_that_refuses_is_one_line(tmp_path) -> None:
    elsewhere = Elsewhere(str(tmp_path / "there"), tmp_path / "train-1")
    (tmp_path / "there").write_text("")
    (tmp_path / "state.json").write_text("{}")
    with pytest.raises(MachineError, match="cannot reach the place where checkpoints go") as caught:
        elsewhere.put(tmp_path, "step-00000001", ["state.json"])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("below", ["", "/below/it"])
def test_a_file_in_place_of_the_folder_is_known_before_anybody_goes_there(tmp_path, below) -> None:
    (tmp_path / "file").write_text("")
    problem = place_problem(f"{tmp_path}/file{below}")
    assert isinstance(problem, MachineError)
    assert str(problem).startswith("train.exec.checkpoint_to: checkpoints cannot go to this folder")
    assert f"{tmp_path}/file is a file" in str(problem)
    with pytest.raises(MachineError, match="is a file"):
        Elsewhere(f"{tmp_path}/file{below}", tmp_path / "train-1")


@pytest.mark.parametrize("kind", ["memory", "simplecache::memory", "file", "folder"])
def test_a_probe_leaves_nothing_behind(tmp_path, kind) -> None:
    there = str(tmp_path / "there") if kind in ("file", "folder") else f"/{uuid4().hex}"
    place = there if kind == "folder" else f"{kind}://{there}"
    Elsewhere(place, tmp_path / "train-1").probe()
    system, path = fsspec.core.url_to_fs(place)
    assert system.find(path) == []


def test_a_probe_finds_what_only_writing_shows(tmp_path, monkeypatch) -> None:
    with pytest.raises(MachineError, match=r"cannot reach the place .*/proc/nope.*; mend the place, or leave the key"):
        Elsewhere("/proc/nope", tmp_path / "train-1").probe()

    def refuse(*_, **__):
        raise PermissionError("deletes nothing")

    elsewhere = Elsewhere(f"memory://{uuid4().hex}", tmp_path / "train-1")
    monkeypatch.setattr(type(fsspec.filesystem("memory")), "rm_file", refuse)
    with pytest.raises(MachineError, match="deletes nothing"):
        elsewhere.probe()


def test_a_protocol_is_known_before_anybody_goes_there(monkeypatch) -> None:
    assert [place_problem(place) for place in ("runs", "/runs", "memory://x", "simplecache::memory://x")] == [None] * 4
    problem = place_problem("gcs2://bucket/runs")
    assert isinstance(problem, RecipeError)
    assert problem.where == "train.exec.checkpoint_to"
    assert "an unknown protocol (seen 'gcs2://bucket/runs', expected one that fsspec knows" in str(problem)
    assert str(problem).endswith("did you mean 'gcs'?")

    def absent(protocol: str) -> None:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec, "get_filesystem_class", absent)
    problem = place_problem("s3://bucket")
    assert isinstance(problem, MachineError)
    assert str(problem).endswith("Install s3fs to access S3")


@pytest.mark.parametrize("place", ["zip://nowhere.zip", "zip://::memory://x.zip", "tar://x.tar"])
def test_an_archive_is_refused_before_anybody_goes_there(place, tmp_path) -> None:
    problem = place_problem(place)
    assert isinstance(problem, RecipeError)
    assert "train.exec.checkpoint_to: an archive takes no checkpoints" in str(problem)
    with pytest.raises(RecipeError, match="an archive takes no checkpoints"):
        Elsewhere(place, tmp_path)


class ClientError(Exception):
    """What a client raises that knows nothing of OSError."""


def test_whatever_a_client_raises_is_one_line(tmp_path, monkeypatch) -> None:
    def refuse(*_, **__):
        raise ClientError("no credentials")

    elsewhere = Elsewhere("memory://x", tmp_path / "train-1")
    monkeypatch.setattr(type(fsspec.filesystem("memory")), "makedirs", refuse)
    with pytest.raises(MachineError, match="cannot reach the place where checkpoints go .*ClientError: no credentials"):
        elsewhere.put(tmp_path, "step-00000001", [])
    monkeypatch.setattr(fsspec.core, "url_to_fs", refuse)
    with pytest.raises(RecipeError, match="cannot open this place .*no credentials"):
        Elsewhere("memory://x", tmp_path / "train-1")


ONE = {"matrix": np.arange(24, dtype=np.float32).reshape(6, 4)}
HALVES = {"matrix": [((0, 0), (3, 4)), ((3, 0), (3, 4))]}
RANKS = 3


def in_ranks(work: Callable[[int, Callable[[Any], list[Any]]], None]) -> None:
    """Calls it as each rank, in threads; ``exchange`` waits for all as a collective does."""
    told, barrier = [None] * RANKS, threading.Barrier(RANKS, timeout=60)

    def as_rank(rank: int) -> None:
        def exchange(value: Any) -> list[Any]:
            told[rank] = value
            barrier.wait()
            seen = list(told)
            barrier.wait()
            return seen

        work(rank, exchange)

    threads = [threading.Thread(target=as_rank, args=(rank,)) for rank in range(RANKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.fixture
def mirrors(tmp_path) -> list[Mirror]:
    """Of each rank, from ``checkpoints`` to a folder ``there``."""
    place = str(tmp_path / "there")
    root = tmp_path / "checkpoints"
    return [Mirror(Elsewhere(place, tmp_path / "t"), root, rank=rank, ranks=RANKS) for rank in range(RANKS)]


def bring(mirrors: list[Mirror], *kept: str, fresh: str | None = None) -> None:
    in_ranks(lambda rank, exchange: mirrors[rank].bring(kept, exchange, fresh=fresh))


def refusing(monkeypatch, mirror: Mirror) -> Callable[[], None]:
    """Lets one rank copy nothing; returns what mends it."""

    def refuse(*_):
        raise MachineError("cannot reach the place where checkpoints go", seen="down")

    put = mirror.place.put
    monkeypatch.setattr(mirror.place, "put", refuse)
    return lambda: monkeypatch.setattr(mirror.place, "put", put)


def whole(tmp_path) -> list[str]:
    """Names of the complete checkpoints there, each of which has every byte right."""
    paths = sorted(path.parent for path in (tmp_path / "there" / "t").glob("step-*/checkpoint.json"))
    assert [problem for path in paths for problem in CheckpointReader(path).damages()] == []
    return [path.name for path in paths]


def test_what_one_rank_cannot_copy_is_there_not_at_all_and_later_whole(mirrors, tmp_path, monkeypatch) -> None:
    first, second = "step-00000001", "step-00000002"
    write_checkpoint(tmp_path / "checkpoints" / first, ONE, HALVES)
    bring(mirrors, first, fresh=first)
    assert whole(tmp_path) == [first] and all(mirror.current for mirror in mirrors)
    write_checkpoint(tmp_path / "checkpoints" / second, {"matrix": ONE["matrix"] + 1}, HALVES, step=2)
    mend = refusing(monkeypatch, mirrors[1])
    bring(mirrors, second, fresh=second)
    assert whole(tmp_path) == [first], "what is not kept stays where nothing took its place"
    assert [str(mirror.refusal) for mirror in mirrors] == [str(mirrors[0].refusal)] * RANKS
    assert "down" in str(mirrors[0].refusal) and not any(mirror.current for mirror in mirrors)
    assert "tried again with the next one" in mirrors[0].said[-1]
    mend()
    bring(mirrors, second)
    assert whole(tmp_path) == [second]
    assert "again: none is missing there" in mirrors[0].said[-1]


def test_another_one_of_the_same_name_takes_the_place_of_the_former(mirrors, tmp_path, monkeypatch) -> None:
    """Even where it is copied late: of two trainings' bytes under one index none would be right."""
    name = "step-00000001"
    path = write_checkpoint(tmp_path / "checkpoints" / name, ONE, HALVES)
    bring(mirrors, name, fresh=name)
    shutil.rmtree(path)
    write_checkpoint(path, {"matrix": ONE["matrix"] + 1}, HALVES)
    mend = refusing(monkeypatch, mirrors[2])
    bring(mirrors, name, fresh=name)
    assert whole(tmp_path) == []
    mend()
    bring(mirrors, name)
    assert whole(tmp_path) == [name]
    assert (tmp_path / "there" / "t" / name / "checkpoint.json").read_bytes() == (path / "checkpoint.json").read_bytes()


def test_a_rank_that_cannot_write_there_is_found_by_all_before_training(mirrors, monkeypatch) -> None:
    def refuse():
        raise MachineError("no rights on this host")

    monkeypatch.setattr(mirrors[1].place, "probe", refuse)
    caught: list[str] = []

    def probe(rank: int, exchange: Callable[[Any], list[Any]]) -> None:
        with pytest.raises(MachineError) as error:
            mirrors[rank].probe(exchange)
        caught.append(str(error.value))

    in_ranks(probe)
    assert caught == ["no rights on this host"] * RANKS


def test_a_damaged_one_is_not_copied(mirrors, tmp_path) -> None:
    good, bad = "step-00000001", "step-00000002"
    write_checkpoint(tmp_path / "checkpoints" / good, ONE, HALVES)
    (write_checkpoint(tmp_path / "checkpoints" / bad, ONE, HALVES) / "checkpoint.json").write_text("{")
    bring(mirrors, good, bad)
    assert whole(tmp_path) == [good] and mirrors[0].current


def test_what_was_half_copied_and_is_kept_no_more_leaves_nothing_there(mirrors, tmp_path, monkeypatch) -> None:
    """A place that goes down in the middle of a checkpoint, and is back when that one is old, keeps no part of it."""
    first, second = "step-00000001", "step-00000002"
    write_checkpoint(tmp_path / "checkpoints" / first, ONE, HALVES)
    mend = refusing(monkeypatch, mirrors[1])
    bring(mirrors, first, fresh=first)
    there = tmp_path / "there" / "t"
    assert list(there.glob(f"{first}/*")) and whole(tmp_path) == [], "the other ranks' files are there"
    mend()
    write_checkpoint(tmp_path / "checkpoints" / second, ONE, HALVES, step=2)
    bring(mirrors, second, fresh=second)
    assert [path.name for path in there.iterdir()] == [second] == whole(tmp_path)
