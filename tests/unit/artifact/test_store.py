"""Artefacts are complete or absent; damage is named; two processes never work on one."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from trainwright.artifact import store
from trainwright.artifact.store import (
    MANIFEST,
    Workspace,
    directory_digest,
    open_artifact,
    write_atomically,
    writing,
)
from trainwright.core.errors import DataError, MachineError
from trainwright.core.fingerprint import file_digest
from trainwright.spec.manifest import Manifest
from trainwright.testing.artifacts import make_artifact

FINGERPRINT = "ab" * 32


def manifest(**keys) -> Manifest:
    base = {
        "kind": "dataset",
        "stage": "data",
        "stage_version": 1,
        "fingerprint": FINGERPRINT,
        "identity": {"a": 1},
        "inputs": {},
        "files": (),
    }
    return Manifest(**(base | {"summary": {"tokens": 3}} | keys))


@pytest.fixture
def artifact(tmp_path):
    workspace = Workspace(tmp_path)
    partial = workspace.draft("data", FINGERPRINT)
    (partial / "one.bin").write_bytes(b"one")
    (partial / "sub").mkdir()
    (partial / "sub" / MANIFEST).write_bytes(b"{}")
    (partial / ".scratch").mkdir()
    (partial / ".scratch" / "part").write_bytes(b"gone")
    return workspace.commit(partial, manifest())


def test_a_commit_lists_every_file_and_drops_scratch(artifact, tmp_path) -> None:
    found = {entry.path: entry for entry in artifact.manifest.files}
    assert set(found) == {"one.bin", f"sub/{MANIFEST}"}
    assert found["one.bin"].sha256 == hashlib.sha256(b"one").hexdigest()
    assert found["one.bin"].size_bytes == 3
    assert not (artifact.path / ".scratch").exists()
    assert not list(tmp_path.glob("*.partial"))
    assert open_artifact(artifact.path).manifest == artifact.manifest
    assert artifact.summary == {"tokens": 3}


def test_it_is_found_by_its_whole_fingerprint_only(artifact, tmp_path) -> None:
    workspace = Workspace(tmp_path)
    assert workspace.find("data", FINGERPRINT).path == artifact.path
    assert workspace.find("data", FINGERPRINT[:12] + "0" * 52) is None, "twelve equal digits are not enough"
    assert workspace.find("data", "cd" * 32) is None


def test_work_under_way_is_no_artefact(tmp_path) -> None:
    workspace = Workspace(tmp_path)
    partial = workspace.draft("data", FINGERPRINT)
    (partial / "half").write_bytes(b"x")
    assert workspace.find("data", FINGERPRINT) is None
    assert workspace.draft("data", FINGERPRINT) == partial
    assert (partial / "half").exists(), "the next run takes it up"
    with pytest.raises(DataError, match="no complete artefact here"):
        open_artifact(partial)


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        (lambda path: path.write_bytes(b"two"), r"one\.bin: damaged file: its sha256 does not match"),
        (lambda path: path.write_bytes(b"more"), r"one\.bin: damaged file: its size changed .seen 4 bytes, expected 3"),
        (lambda path: path.unlink(), r"one\.bin: a file of this artefact is missing"),
    ],
)
def test_damage_is_named(artifact, damage, line) -> None:
    artifact.verify()
    damage(artifact.path / "one.bin")
    artifact.verify({f"sub/{MANIFEST}"})
    with pytest.raises(DataError, match=line):
        artifact.verify()


def test_the_digest_is_of_content_and_of_the_files_asked_for(artifact, tmp_path) -> None:
    workspace = Workspace(tmp_path / "other")
    partial = workspace.draft("data", "cd" * 32)
    (partial / "one.bin").write_bytes(b"one")
    (partial / "extra.txt").write_bytes(b"made elsewhere")
    other = workspace.commit(partial, manifest(fingerprint="cd" * 32, summary={}))
    assert other.digest(("*.bin",)) == artifact.digest(("*.bin",))
    assert other.digest() != artifact.digest()


def test_a_file_it_does_not_have(artifact) -> None:
    assert artifact.file("one.bin").read_bytes() == b"one"
    with pytest.raises(DataError, match="no file 'two.bin'"):
        artifact.file("two.bin")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("{", "cannot be read"),
        (
            '{"format": 99}',
            "written in another format .seen format 99, by trainwright of an unknown version, expected format 1 to 2",
        ),
        ('{"format": 2}', "not a valid Manifest"),
    ],
)
def test_a_damaged_manifest_is_one_line(artifact, text, line) -> None:
    (artifact.path / MANIFEST).write_text(text)
    with pytest.raises(DataError, match=line) as caught:
        open_artifact(artifact.path)
    assert "\n" not in str(caught.value)
    if text == "{":
        assert f"; delete {artifact.path} and run the same command" in str(caught.value)


def test_another_process_is_kept_out(tmp_path) -> None:
    program = (
        "import sys; from pathlib import Path; from trainwright.artifact.store import Workspace\n"
        f"with Workspace(Path(sys.argv[1])).lock('data', '{FINGERPRINT}'):\n"
        "    print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(MachineError, match="another process is working on data"),
            Workspace(tmp_path).lock("data", FINGERPRINT),
        ):
            pass
        holder.stdin.close()
        holder.wait()
    with Workspace(tmp_path).lock("data", FINGERPRINT):
        pass


def test_a_killed_writer_leaves_the_old_file(tmp_path) -> None:
    path = tmp_path / "state.json"
    write_atomically(path, b"old")
    program = (
        "import os, sys; from pathlib import Path; from trainwright.artifact import store\n"
        "store.os.fsync = lambda handle: os._exit(9)\n"
        "store.write_atomically(Path(sys.argv[1]), b'new' * 100000)"
    )
    assert subprocess.run([sys.executable, "-c", program, str(path)], check=False).returncode == 9
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize(
    ("code", "line"),
    [
        (errno.ENOSPC, "the disk is full; free some space and run the same command: finished parts are kept"),
        (errno.EROFS, "cannot write: Read-only file system; choose another place with --workspace"),
    ],
)
def test_the_system_s_refusals_become_one_line(tmp_path, code, line) -> None:
    with pytest.raises(MachineError) as caught, writing(tmp_path):
        raise OSError(code, os.strerror(code), str(tmp_path / "x"))
    assert str(caught.value) == f"{tmp_path / 'x'}: {line}"
    with pytest.raises(FileNotFoundError), writing(tmp_path):
        raise FileNotFoundError(errno.ENOENT, "no such file", "x")


def test_a_folder_that_vanishes_while_it_is_written_is_no_defect_of_ours(tmp_path) -> None:
    line = r"part: cannot write: No such file or directory; choose another place"
    with pytest.raises(MachineError, match=line), writing(tmp_path / "run"):
        (tmp_path / "run" / "part").write_text("the folder is not there")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="this system has no /proc")
def test_a_place_where_no_folder_can_be() -> None:
    place = Path("/proc/absent")
    with pytest.raises(MachineError, match=r"/proc/absent: cannot write"), writing(place):
        place.mkdir(parents=True)


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


def test_the_manifest_is_plain_json(artifact) -> None:
    record = json.loads((artifact.path / MANIFEST).read_text())
    assert record["stage"] == "data" and record["format"] == 2 and len(record["files"]) == 2


def test_a_manifest_of_the_first_format_opens_with_the_kind_of_its_stage(tmp_path) -> None:
    path = make_artifact(tmp_path, "train", {"a": b"1"}).path
    record = json.loads((path / "manifest.json").read_text())
    del record["kind"]
    (path / "manifest.json").write_text(json.dumps(record | {"format": 1}))
    assert open_artifact(path).manifest.kind == "checkpoint"


def test_a_child_workspace_finds_what_is_above_and_writes_below(tmp_path) -> None:
    above = make_artifact(tmp_path / "above", "data", {"a": b"1"})
    child = Workspace(tmp_path / "below", above=(tmp_path / "above",))
    assert child.find("data", above.manifest.fingerprint) == above
    assert child.draft("data", "1" * 64).parent == tmp_path / "below"


def test_an_artefact_of_a_later_version_is_refused_by_its_name(tmp_path) -> None:
    path = make_artifact(tmp_path, "train", {"a": b"1"}).path
    record = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps(record | {"format": 3, "execution": {"trainwright": "9.1.0"}}))
    with pytest.raises(
        DataError, match=r"format 3, by trainwright 9\.1\.0, .*; open it with the version that wrote it"
    ):
        open_artifact(path)


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
