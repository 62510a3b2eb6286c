"""The contract of a source: what every kind in ``data.sources`` promises, as tests to inherit.

::

    class TestMail(SourceContract):
        def keys(self):
            return {"kind": "my_package.sources:Mail"}

        def write(self, folder):
            (folder / "a.mbox").write_bytes(...)
            return ["the first message", "the second one"]
"""

from __future__ import annotations

import gzip
import io
import json
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import pytest

from trainwright.core.errors import DataError
from trainwright.core.fingerprint import canonical
from trainwright.spec.sections.corpus.sources import SourceSection
from trainwright.spec.sections.data import DataSection
from trainwright.stages.data.corpus.digests import hash_file, read_corpus
from trainwright.stages.data.corpus.documents import raw_documents
from trainwright.stages.data.corpus.entries import CorpusFile, FileRange, RawDocument
from trainwright.stages.data.sources import source_of


class SourceContract(ABC):
    """What a source promises. Inherit it, give the recipe's keys without ``paths``, and write a corpus."""

    @abstractmethod
    def keys(self) -> dict[str, Any]:
        """Returns the keys in the recipe, ``kind`` among them; ``paths`` are added."""

    @abstractmethod
    def write(self, folder: Path) -> list[str]:
        """Writes one or more files into a folder; returns the texts of their documents, in order of the names."""

    @pytest.fixture
    def corpus(self, tmp_path: Path) -> tuple[Path, list[str]]:
        """The folder and the documents that ``write`` promises."""
        folder = tmp_path / "corpus"
        folder.mkdir()
        return folder, self.write(folder)

    def recipe(self, *paths: Path) -> DataSection:
        """Returns the data section of a recipe that names these paths."""
        return DataSection.model_validate({"sources": [self.keys() | {"paths": [str(path) for path in paths]}]})

    def files(self, folder: Path) -> tuple[tuple[CorpusFile, ...], SourceSection]:
        """Returns the files that the source takes from a folder."""
        recipe = self.recipe(folder)
        return read_corpus(recipe, cache=None).files, recipe.sources[0]

    def documents(self, folder: Path) -> list[RawDocument]:
        """Returns all documents of a folder."""
        files, section = self.files(folder)
        return [document for file in files for document in raw_documents(FileRange(file=file), section)]

    def test_the_documents_are_those_that_were_written(self, corpus: tuple[Path, list[str]]) -> None:
        folder, texts = corpus
        assert texts, "write at least one document"
        documents = self.documents(folder)
        assert [document.text for document in documents if document.problem is None] == texts

    def test_a_document_has_a_text_or_a_problem(self, corpus: tuple[Path, list[str]]) -> None:
        for document in self.documents(corpus[0]):
            assert (document.text is None) != (document.problem is None)
            assert document.size_bytes >= 0

    def test_reading_again_gives_the_same(self, corpus: tuple[Path, list[str]]) -> None:
        assert self.documents(corpus[0]) == self.documents(corpus[0])

    def test_the_head_is_the_beginning_of_a_file(self, corpus: tuple[Path, list[str]]) -> None:
        files, section = self.files(corpus[0])
        for file in files:
            part = FileRange(file=file)
            with Path(file.location).open("rb") as stream:
                head = list(source_of(section).head(stream, part))
            assert head == list(raw_documents(part, section))[: len(head)]

    def test_a_path_may_name_one_file(self, corpus: tuple[Path, list[str]]) -> None:
        files, section = self.files(corpus[0])
        recipe = self.recipe(*(Path(file.location) for file in files))
        alone = read_corpus(recipe, cache=None).files
        assert [file.location for file in alone] == [file.location for file in files]
        assert source_of(section).paths == section.model_dump()["paths"]

    def test_compressed_files_are_read_alike(self, corpus: tuple[Path, list[str]], tmp_path: Path) -> None:
        files, section = self.files(corpus[0])
        for file in files:
            path = tmp_path / f"{Path(file.location).name}.gz"
            path.write_bytes(gzip.compress(Path(file.location).read_bytes()))
            packed = hash_file(CorpusFile(source=0, name=file.name, location=str(path), size_bytes=0, version=""))
            assert isinstance(packed, CorpusFile)
            texts = [document.text for document in raw_documents(FileRange(file=packed), section)]
            assert texts == [document.text for document in raw_documents(FileRange(file=file), section)]

    def test_ranges_give_each_document_once(self, corpus: tuple[Path, list[str]]) -> None:
        files, section = self.files(corpus[0])
        if not source_of(section).by_lines:
            pytest.skip("this source reads whole files")
        for file in files:
            for step in (1, 7, max(file.size_bytes // 2, 1)):
                starts = range(0, file.size_bytes, step)
                parts = [FileRange(file=file, start=at, stop=min(at + step, file.size_bytes)) for at in starts]
                texts = [document.text for part in parts for document in raw_documents(part, section)]
                assert texts == [document.text for document in raw_documents(FileRange(file=file), section)]

    @pytest.mark.parametrize("data", [b"", b"\x00" * 100, b"\xff\xfe\xfd" * 50, b"{" * 5000], ids=range(4))
    def test_bytes_of_no_sense_are_counted_or_refused_in_one_line(
        self, corpus: tuple[Path, list[str]], data: bytes
    ) -> None:
        (file, *_), section = self.files(corpus[0])
        Path(file.location).write_bytes(data)
        damaged = hash_file(file)
        assert isinstance(damaged, CorpusFile)
        refusals: list[str] = []
        try:
            documents = list(raw_documents(FileRange(file=damaged), section))
        except DataError as error:
            documents, refusals = [], str(error).splitlines()
        assert len(refusals) <= 1
        assert all(document.text is None or isinstance(document.text, str) for document in documents)

    def test_a_recipe_keeps_every_key_in_its_identity(self, corpus: tuple[Path, list[str]]) -> None:
        recipe = self.recipe(corpus[0])
        written = json.loads(canonical(recipe.model_dump(mode="json", exclude={"exec"})))
        assert written["sources"][0].items() >= json.loads(canonical(self.keys())).items()
        assert DataSection.model_validate(written) == recipe

    def test_the_stream_is_left_to_the_stage(self, corpus: tuple[Path, list[str]]) -> None:
        (file, *_), section = self.files(corpus[0])
        stream = io.BytesIO(Path(file.location).read_bytes())
        list(source_of(section).read(stream, FileRange(file=file)))
        assert not stream.closed, "the stage closes the stream"
