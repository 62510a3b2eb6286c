"""Artefacts are complete or absent; two processes never work on one; what is handed out again is looked at."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
import sys

import pytest

from trainwright.artifact import store
from trainwright.artifact.store import MANIFEST, open_artifact
from trainwright.artifact.workspace import Workspace, directory_digest
from trainwright.core.errors import DataError, MachineError
from trainwright.core.fingerprint import file_digest
from trainwright.spec.manifest import Manifest
from trainwright.testing.artifacts import make_artifact

FINGERPRINT = "ab" * 32
FINISHED = Manifest(
    kind="dataset",
    stage="data",
    stage_version=1,
    fingerprint=FINGERPRINT,
    identity={"a": 1},
    inputs={},
    files=(),
    summary={"tokens": 3},
)


@pytest.fixture
def artifact(tmp_path):
    workspace = Workspace(tmp_path)
    partial = workspace.draft("data", FINGERPRINT)
    (partial / "one.bin").write_bytes(b"one")
    (partial / "sub").mkdir()
    (partial / "sub" / MANIFEST).write_bytes(b"{}")
    (partial / ".scratch").mkdir()
    (partial / ".scratch" / "part").write_bytes(b"gone")
    return workspace.commit(partial, FINISHED)


def test_a_commit_lists_every_file_and_drops_scratch(artifact, tmp_path) -> None:
    found = {entry.path: entry for entry in artifact.manifest.files}
    assert set(found) == {"one.bin", f"sub/{MANIFEST}"}
    assert found["one.bin"].sha256 == hashlib.sha256(b"one").hexdigest()
    assert found["one.bin"].size_bytes == 3
    assert not (artifact.path / ".scratch").exists()
    assert not list(tmp_path.glob("*.partial"))
    assert open_artifact(artifact.path).manifest == artifact.manifest
    assert artifact.summary == {"tokens": 3}


def test_what_a_killed_process_left_in_a_subfolder_does_not_become_part_of_it(tmp_path) -> None:
    workspace = Workspace(tmp_path / "runs")
    (tmp_path / "elsewhere").mkdir()
    partial = workspace.draft("data", FINGERPRINT)
    for name in ("sub/one.bin", "sub/.one.bin.tmp", "sub/.half/.a/part", "sub/.half/b", ".top/.one"):
        (partial / name).parent.mkdir(parents=True, exist_ok=True)
        (partial / name).write_bytes(b"one")
    (partial / "sub" / ".link").symlink_to(tmp_path / "elsewhere")
    artifact = workspace.commit(partial, FINISHED)
    assert [entry.path for entry in artifact.manifest.files] == ["sub/one.bin"]
    assert {path.name for path in artifact.path.rglob("*")} == {"sub", "one.bin", MANIFEST}
    assert (tmp_path / "elsewhere").is_dir()


def test_it_is_found_by_its_whole_fingerprint_only(artifact, tmp_path) -> None:
    workspace = Workspace(tmp_path)
    assert workspace.find("data", FINGERPRINT).path == artifact.path
    with pytest.raises(DataError, match=rf"{artifact.path}: this is another artefact \(seen {FINGERPRINT}"):
        workspace.find("data", FINGERPRINT[:12] + "0" * 52)  # twelve equal digits are not enough
    assert workspace.find("data", "cd" * 32) is None


def test_a_copy_without_its_manifest_is_named_and_kept(artifact, tmp_path) -> None:
    (artifact.path / MANIFEST).unlink()
    for workspace in (Workspace(tmp_path), Workspace(tmp_path / "below", above=(tmp_path,))):
        with pytest.raises(DataError) as caught:
            workspace.find("data", FINGERPRINT)
        assert str(caught.value) == (
            f"{artifact.path / MANIFEST}: a file of this artefact is missing; "
            f"delete {artifact.path} and run the same command to make it again"
        )
    with pytest.raises(OSError, match="not empty"):
        Workspace(tmp_path).commit(Workspace(tmp_path).draft("data", FINGERPRINT), FINISHED)
    assert (artifact.path / "one.bin").read_bytes() == b"one"


def test_work_under_way_is_no_artefact(tmp_path) -> None:
    workspace = Workspace(tmp_path)
    partial = workspace.draft("data", FINGERPRINT)
    (partial / "half").write_bytes(b"x")
    assert workspace.find("data", FINGERPRINT) is None
    assert workspace.draft("data", FINGERPRINT) == partial
    assert (partial / "half").exists(), "the next run takes it up"
    with pytest.raises(DataError, match="no complete artefact here"):
        open_artifact(partial)


def test_a_child_workspace_finds_what_is_above_and_writes_below(tmp_path) -> None:
    above = make_artifact(tmp_path / "above", "data", {"a": b"1"})
    child = Workspace(tmp_path / "below", above=(tmp_path / "above",))
    assert child.find("data", above.manifest.fingerprint) == above
    assert child.draft("data", "1" * 64).parent == tmp_path / "below"


def test_another_process_is_kept_out(tmp_path) -> None:
    program = (
        "import sys; from pathlib import Path; from trainwright.artifact.workspace import Workspace\n"
        f"with Workspace(Path(sys.argv[1])).lock('data', '{FINGERPRINT}'):\n"
        "    print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(MachineError, match=rf"working on data \(seen process {holder.pid} on "),
            Workspace(tmp_path).lock("data", FINGERPRINT),
        ):
            pass
        holder.stdin.close()
        holder.wait()
    with Workspace(tmp_path).lock("data", FINGERPRINT):
        pass


def test_a_full_disk_is_named_where_the_lock_is_written(tmp_path, monkeypatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr("trainwright.artifact.workspace.os.write", refuse)
        with (
            pytest.raises(MachineError, match="the disk is full.*free") as raised,
            Workspace(tmp_path).lock("data", FINGERPRINT),
        ):
            pytest.fail("it holds a lock that names nobody")
    assert str(tmp_path / ".data-") in str(raised.value)
    with Workspace(tmp_path).lock("data", FINGERPRINT):
        pass


def test_a_workspace_that_cannot_be_made(tmp_path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(MachineError, match="cannot write"):
        Workspace(tmp_path / "file" / "inside").draft("data", FINGERPRINT)


def test_directory_digest_sees_names_and_contents(tmp_path) -> None:
    with pytest.raises(DataError, match="no files here"):
        directory_digest(tmp_path / "absent")
    (tmp_path / "a").write_text("1")
    first = directory_digest(tmp_path)
    (tmp_path / "a").write_text("2")
    second = directory_digest(tmp_path)
    (tmp_path / "a").rename(tmp_path / "b")
    assert len({first, second, directory_digest(tmp_path)}) == 3


@pytest.fixture
def checked(tmp_path, monkeypatch):
    """An artefact of two files, and the names of those that a check reads."""
    artifact = make_artifact(tmp_path, "export", {"model": b"weights", "card": b"text"})
    read: list[str] = []

    def digest(path):
        read.append(path.name)
        return file_digest(path)

    monkeypatch.setattr(store, "file_digest", digest)
    return Workspace(tmp_path), artifact, read


def test_what_was_not_touched_is_not_read_again(checked) -> None:
    workspace, artifact, read = checked
    workspace.check(artifact)
    assert read == []


def test_a_flipped_byte_is_found_though_the_size_is_right(checked) -> None:
    workspace, artifact, read = checked
    (artifact.path / "model").write_bytes(b"weighty")
    for _ in range(2):
        with pytest.raises(DataError, match="model: damaged file: its sha256 does not match"):
            workspace.check(artifact)
    assert read == ["model", "model"]


def test_a_lost_or_shorter_file_is_found(checked) -> None:
    workspace, artifact, _ = checked
    (artifact.path / "model").write_bytes(b"weight")
    with pytest.raises(DataError, match="its size changed"):
        workspace.check(artifact)
    (artifact.path / "model").unlink()
    with pytest.raises(DataError, match="is missing"):
        workspace.check(artifact)


def test_a_copied_workspace_is_read_once(checked, tmp_path) -> None:
    _, artifact, read = checked
    shutil.copytree(tmp_path, tmp_path.with_name("copy"))
    workspace = Workspace(tmp_path.with_name("copy"))
    copied = workspace.find("export", artifact.manifest.fingerprint)
    workspace.check(copied)
    assert sorted(read) == ["card", "model"]
    workspace.check(copied)
    assert len(read) == 2
