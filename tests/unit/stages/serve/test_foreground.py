from __future__ import annotations

import pytest

from trainwright.core.errors import DataError, MachineError
from trainwright.spec.sections.serve import ServeSection
from trainwright.stages.serve.foreground import open_server, verify_bundle
from trainwright.stages.serve.server import listen
from trainwright.testing.artifacts import make_artifact


def serve(directory, **section):
    section = ServeSection(**({"port": 0, "max_concurrent": 1, "max_waiting": 0} | section))
    return open_server(directory, section, model_name="tiny", api_key=None)


def test_a_port_in_use_is_found_before_the_model_is_loaded(tmp_path):
    with listen("127.0.0.1", 0) as taken, pytest.raises(MachineError, match="the port is in use"):
        serve(tmp_path / "no model at all", port=taken.getsockname()[1])


def test_a_model_that_cannot_be_loaded_leaves_the_port_free(tmp_path):
    with listen("127.0.0.1", 0) as probe:
        port = probe.getsockname()[1]
    with pytest.raises(DataError, match="no model here"):
        serve(tmp_path, port=port)
    listen("127.0.0.1", port).close()


def test_it_serves(bundle):
    with serve(bundle) as server:
        assert server.port > 0


def test_the_sections_engine_is_opened(bundle):
    with serve(bundle, engine="fixtures.parrot_engine:open_engine") as server:
        assert server.port > 0


@pytest.fixture
def exported(tiny, bundle, tmp_path):
    """An artefact whose model lies in a folder of it, as an export's does."""
    files = {f"huggingface/{path.name}": path.read_bytes() for path in bundle.iterdir()}
    return make_artifact(tmp_path / "workspace", "export", files | {"summary.json": b"{}"}).path


@pytest.fixture
def trained(bundle, tmp_path):
    """An artefact that is a model."""
    return make_artifact(
        tmp_path / "workspace", "train", {path.name: path.read_bytes() for path in bundle.iterdir()}
    ).path


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["model.safetensors", "model.json", "tokenizer.json"])
def test_a_flipped_bit_is_refused_with_the_files_name(exported, trained, name):
    for directory in (exported / "huggingface", trained):
        verify_bundle(directory)
        flip(directory / name)
        with pytest.raises(DataError, match=rf"{name}: damaged file"):
            serve(directory)


def test_a_missing_file_is_refused_with_its_name(exported):
    (exported / "huggingface" / "tokenizer.json").unlink()
    with pytest.raises(DataError, match=r"tokenizer\.json: a file of this artefact is missing"):
        serve(exported / "huggingface")


def test_a_damaged_manifest_is_refused(exported):
    (exported / "manifest.json").write_text("{")
    with pytest.raises(DataError, match=r"manifest\.json: the manifest cannot be read"):
        serve(exported / "huggingface")


@pytest.mark.parametrize("key", [b"fingerprint", b"stage_version", b"files", b"sha256"])
def test_a_manifest_with_a_misspelt_key_is_still_ours(exported, key):
    path = exported / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b'"%b"' % key, b'"%b"' % key.swapcase(), 1))
    with pytest.raises(DataError, match=r"manifest\.json: damaged manifest: its own sha256 does not match"):
        serve(exported / "huggingface")


def test_only_the_models_own_files_matter(exported):
    flip(exported / "summary.json")
    verify_bundle(exported / "huggingface")


@pytest.mark.parametrize("text", ["[]", '{"name": "a web page"}'])
def test_a_manifest_of_another_program_is_none(bundle, tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    (tmp_path / "model").mkdir()
    verify_bundle(tmp_path)
    verify_bundle(tmp_path / "model")
