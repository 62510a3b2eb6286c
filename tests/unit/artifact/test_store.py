"""Damage is named; what was written is the old or the new; refusals to write are one line."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from trainwright.artifact.store import MANIFEST, manifest_bytes, open_artifact, write_atomically, writing
from trainwright.core.errors import DataError, MachineError
from trainwright.testing.artifacts import make_artifact


@pytest.fixture
def artifact(tmp_path):
    return make_artifact(tmp_path, "data", {"one.bin": b"one", f"sub/{MANIFEST}": b"{}"}, {"tokens": 3})


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
    other = make_artifact(tmp_path / "other", "train", {"one.bin": b"one", "extra.txt": b"made elsewhere"})
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
            "written in another format .seen format 99, by trainwright of an unknown version, expected format 1 to 3",
        ),
        ('{"format": 2}', "not a valid Manifest"),
        ('{"format": 3}', "damaged manifest: its own sha256 does not match .*expected a second line with it"),
    ],
)
def test_a_damaged_manifest_is_one_line(artifact, text, line) -> None:
    (artifact.path / MANIFEST).write_text(text)
    with pytest.raises(DataError, match=line) as caught:
        open_artifact(artifact.path)
    assert "\n" not in str(caught.value)
    if text == "{":
        assert f"; delete {artifact.path} and run the same command" in str(caught.value)


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


WRITER = """
import os, sys
from pathlib import Path
from trainwright.artifact import store
def fsync(handle):
    print("writing", flush=True)
    sys.stdin.read()
os.fsync = fsync
store.write_atomically(Path(sys.argv[1]), b"first" * 100000)
"""
MANY = """
import os, sys
from pathlib import Path
from trainwright.artifact.store import write_atomically
os.getpid = lambda: 7  # as the first process of each container has the same
for _ in range(100):
    write_atomically(Path(sys.argv[1]), sys.argv[2].encode() * 50000)
"""


@pytest.fixture
def writer(tmp_path):
    """A process that has begun to write ``state.json`` and waits; the file holds ``old``."""
    path = tmp_path / "state.json"
    write_atomically(path, b"old")
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "writing\n"
        yield process
        process.kill()


def test_what_killed_writers_leave_is_one_file_and_the_next_writer_takes_it(tmp_path) -> None:
    path = tmp_path / "state.json"
    program = WRITER.replace("sys.stdin.read()", "os.kill(os.getpid(), 9)")
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", program, str(path)], stdout=subprocess.DEVNULL, check=False)
        assert done.returncode == -9
    assert len(list(tmp_path.iterdir())) == 1
    write_atomically(path, b"new")
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("state.json", b"new")]


def test_a_writer_that_is_interrupted_leaves_nothing(tmp_path, monkeypatch) -> None:
    def interrupt(handle) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "state.json", b"new")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("killed", [False, True])
def test_a_second_writer_waits_for_the_first_one_and_a_reader_for_none(tmp_path, writer, killed) -> None:
    path = tmp_path / "state.json"
    with ThreadPoolExecutor() as threads:
        second = threads.submit(write_atomically, path, b"second")
        with pytest.raises(TimeoutError):
            second.result(timeout=0.2)
        assert path.read_bytes() == b"old"
        if killed:
            writer.kill()
        writer.communicate()
        second.result()
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("state.json", b"second")]


def test_many_writers_of_one_file_never_mix_their_bytes(tmp_path) -> None:
    path, contents = tmp_path / "state.json", ("a", "bc", "def")
    whole = {content.encode() * 50000 for content in contents}
    command = [sys.executable, "-c", MANY, str(path)]
    writers = [subprocess.Popen([*command, content]) for content in contents]
    while any(writer.poll() is None for writer in writers):
        assert not path.exists() or path.read_bytes() in whole
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert path.read_bytes() in whole
    assert list(tmp_path.iterdir()) == [path]


MOUNT = "mount it again and run the same command: finished parts are kept"


@pytest.mark.parametrize(
    ("code", "line"),
    [
        (errno.ENOSPC, "the disk is full; free some space and run the same command: finished parts are kept"),
        (errno.EIO, f"the file system is gone: {os.strerror(errno.EIO)}; {MOUNT}"),
        (errno.ESTALE, f"the file system is gone: {os.strerror(errno.ESTALE)}; {MOUNT}"),
        (errno.EROFS, "cannot write: Read-only file system; choose another place with `workspace`"),
        (errno.EEXIST, "cannot write: a file is where a folder should be; choose another place with `workspace`"),
        (errno.ENOTDIR, "cannot write: a file is where a folder should be; choose another place with `workspace`"),
    ],
)
def test_the_system_s_refusals_become_one_line(tmp_path, code, line) -> None:
    with pytest.raises(MachineError) as caught, writing(tmp_path):
        raise OSError(code, os.strerror(code), str(tmp_path / "x"))
    assert str(caught.value) == f"{tmp_path / 'x'}: {line}"
    with pytest.raises(FileNotFoundError), writing(tmp_path):
        raise FileNotFoundError(errno.ENOENT, "no such file", "x")


def test_a_full_disk_names_the_file(tmp_path, monkeypatch) -> None:
    def refuse(handle) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(MachineError, match=r"state\.json: the disk is full"), writing(tmp_path):
        write_atomically(tmp_path / "state.json", b"new")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_vanishes_while_it_is_written_is_no_defect_of_ours(tmp_path) -> None:
    line = r"part: cannot write: No such file or directory; choose another place"
    with pytest.raises(MachineError, match=line), writing(tmp_path / "run"):
        (tmp_path / "run" / "part").write_text("the folder is not there")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="this system has no /proc")
def test_a_place_where_no_folder_can_be() -> None:
    place = Path("/proc/absent")
    with pytest.raises(MachineError, match=r"/proc/absent: cannot write"), writing(place):
        place.mkdir(parents=True)


def test_the_manifest_is_plain_json(artifact) -> None:
    record = json.loads((artifact.path / MANIFEST).read_text())
    assert record["stage"] == "data" and record["format"] == 3 and len(record["files"]) == 2


@pytest.fixture
def former(artifact):
    """Writes the artefact's manifest as an earlier format did: without a digest of its own."""

    def write(number: int, **keys):
        record = json.loads((artifact.path / MANIFEST).read_text()) | {"format": number} | keys
        for key in ("sha256",) if number == 2 else ("sha256", "kind"):
            del record[key]
        (artifact.path / MANIFEST).write_text(json.dumps(record))
        return open_artifact(artifact.path)

    return write


@pytest.mark.parametrize("number", [1, 2])
def test_manifests_of_former_formats_open(former, artifact, number) -> None:
    assert former(number).manifest == artifact.manifest


def test_a_manifest_begins_with_the_digest_of_its_other_lines(artifact) -> None:
    first, second, *others = (artifact.path / MANIFEST).read_bytes().splitlines(keepends=True)
    assert second.decode() == f' "sha256": "{hashlib.sha256(b"".join((first, *others))).hexdigest()}",\n'


@pytest.mark.parametrize("flip", [0x01, 0x04, 0x10, 0x20])
def test_every_flipped_byte_of_a_manifest_is_found(artifact, flip) -> None:
    path = artifact.path / MANIFEST
    data = path.read_bytes()
    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ flip]) + data[place + 1 :])
        with pytest.raises(DataError) as caught:
            open_artifact(artifact.path)
        assert str(caught.value).startswith(f"{path}: ")
        assert str(caught.value).endswith(f"; delete {artifact.path} and run the same command to make it again")


def test_digests_are_shown_whole_for_they_may_differ_at_the_end(former, artifact) -> None:
    files = json.loads((artifact.path / MANIFEST).read_text())["files"]
    right = files[0]["sha256"]
    files[0]["sha256"] = right[:-1] + ("0" if right[-1] != "0" else "1")
    with pytest.raises(DataError, match=f"seen {right}, expected {files[0]['sha256']}"):
        former(2, files=files).verify()


def test_an_artefact_of_a_later_version_is_refused_by_its_name(tmp_path) -> None:
    artifact = make_artifact(tmp_path, "train", {"a": b"1"})
    later = replace(artifact.manifest, format=4, execution={"trainwright": "9.1.0"})
    (artifact.path / MANIFEST).write_bytes(manifest_bytes(later))
    with pytest.raises(
        DataError, match=r"format 4, by trainwright 9\.1\.0, .*; open it with the version that wrote it"
    ):
        open_artifact(artifact.path)
