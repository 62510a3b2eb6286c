"""The sources of a recipe's ``data`` section: which kinds there are, and the keys of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from trainwright.core.extension import Extension
from trainwright.core.plug_in import Called
from trainwright.spec.sections.base import Section
from trainwright.spec.sections.corpus.labels import LabelKeys, TableKeys

SOURCES: Mapping[str, str] = {
    "python-stdlib": "trainwright.stages.data.sources.files:PythonStdlib",
    "python-stdlib-chats": "trainwright.stages.data.sources.python_chats:PythonStdlibChats",
    "python-stdlib-packages": "trainwright.stages.data.sources.python_packages:PythonStdlibPackages",
    "files": "trainwright.stages.data.sources.files:Files",
    "text": "trainwright.stages.data.sources.text:Text",
    "jsonl": "trainwright.stages.data.sources.jsonl:Jsonl",
    "csv": "trainwright.stages.data.sources.csv:Csv",
    "parquet": "trainwright.stages.data.sources.parquet:Parquet",
    "chats": "trainwright.stages.data.sources.chats:Chats",
    "preferences": "trainwright.stages.data.sources.chats:Preferences",
    "words": "trainwright.stages.data.sources.words:Words",
    "conll": "trainwright.stages.data.sources.words:Conll",
    "pairs": "trainwright.stages.data.pairs.source:Pairs",
    "images": "trainwright.stages.data.sources.images:Images",
    "sklearn-digits": "trainwright.stages.data.sources.digits:SklearnDigits",
    "python-docstrings": "trainwright.stages.data.sources.docstrings:PythonDocstrings",
    "python-docstring-pairs": "trainwright.stages.data.pairs.source:PythonDocstringPairs",
}
SOURCE = Extension("source", SOURCES, Called(arguments=("section",), methods=("read",)))


Records = Literal["documents", "chats", "preferences", "words", "pairs", "images"]
"""What sources give: texts, chats, chats of which each has two last answers, sentences of words with a
label each, texts that belong together, or images with their classes."""


class SourceSection(Section):
    """The keys of a source. A plug-in's class of keys derives from it, or from ``PathsSection``."""

    plain_text: ClassVar[bool] = False
    """Whether all bytes of its files are text; in records the other keys count as bytes too."""
    records: ClassVar[Records] = "documents"
    """What it gives."""

    kind: Annotated[str, SOURCE] = Field(description="which kind this is; it decides the other keys")

    @property
    def labelled(self) -> bool:
        """Returns whether every document of the source comes with a label."""
        return False


class PythonSource(SourceSection):
    """The standard library of the Python that runs."""

    plain_text: ClassVar[bool] = True


class PythonChatsSource(SourceSection):
    """Questions about the standard library of the Python that runs, answered from its docstrings and signatures."""

    records: ClassVar[Records] = "chats"


PACKAGES = ("asyncio", "email", "encodings", "idlelib", "importlib", "multiprocessing", "tkinter", "xml")
"""Packages of the standard library with a dozen files or more, beside their tests, in each Python since 3.11."""


class PythonPackagesSource(SourceSection):
    """Pieces of source files from the library of the Python that runs, labelled by the package that they are of.

    All pieces of a file are in one split.
    """

    plain_text: ClassVar[bool] = True

    packages: tuple[str, ...] = Field(
        PACKAGES, min_length=2, description="folders of the library, which are the labels"
    )
    lines: int = Field(40, gt=0, description="of a piece, about: a file is cut into pieces of about equal length")

    @field_validator("packages")
    @classmethod
    def _names_of_folders(cls, packages: tuple[str, ...]) -> tuple[str, ...]:
        wrong = next((name for name in packages if not name.isidentifier() or packages.count(name) > 1), None)
        if wrong is not None:
            raise ValueError(f"{wrong!r} is no name of a package, or stands twice")
        return packages

    @property
    def labelled(self) -> bool:
        """Returns True: the package is the label."""
        return True


class PathsSection(SourceSection):
    """The keys of a source that reads files."""

    paths: tuple[str, ...] = Field(min_length=1, description="files, directories, globs or fsspec URLs")


class FilesSource(PathsSection):
    """Whole files, one document each; gz and zst are opened by their name."""

    plain_text: ClassVar[bool] = True

    include: tuple[str, ...] = Field(("*",), description="name patterns taken from directories")


class TextSource(PathsSection):
    """Text files that hold many documents with a separator between them."""

    plain_text: ClassVar[bool] = True

    separator: str = Field("\n\n", min_length=1, description="what stands between two documents")


class JsonlSource(LabelKeys, PathsSection):
    """One JSON object per line."""

    text_key: str = Field("text", min_length=1, description="key that holds the text")
    label_key: str | None = Field(None, min_length=1, description="key that holds the document's label, for tasks")

    @property
    def labelled(self) -> bool:
        """Returns whether there is a key for labels."""
        return self.label_key is not None


class CsvSource(TableKeys, PathsSection):
    """Rows of tables as text, the first of which names the columns."""

    delimiter: str | None = Field(
        None, min_length=1, max_length=1, description="stands between fields; default: a tab in *.tsv, else a comma"
    )


class ParquetSource(TableKeys, PathsSection):
    """Rows of Parquet files."""


class ChatsSource(PathsSection):
    """Chats, one to a line of JSON or a row of Parquet.

    A record has a list of messages (``role`` and ``content``, or ``from`` and ``value``), or a question and an answer.
    """

    records: ClassVar[Records] = "chats"

    messages_key: str | None = Field(
        None, min_length=1, description="key that holds the messages; default: messages or conversations"
    )
    prompt_key: str = Field("prompt", min_length=1, description="key that holds the question, or the messages so far")
    answer_key: str = Field("completion", min_length=1, description="key that holds the answer")


class PreferencesSource(PathsSection):
    """Two answers to one question, one to a line of JSON or a row of Parquet.

    Question and answers are texts or lists of messages; the prompt may be left out where both answers hold it.
    """

    records: ClassVar[Records] = "preferences"

    prompt_key: str = Field("prompt", min_length=1, description="key that holds the question, or the messages so far")
    chosen_key: str = Field("chosen", min_length=1, description="key that holds the better answer")
    rejected_key: str = Field("rejected", min_length=1, description="key that holds the worse answer")


IMAGE_NAMES = tuple(
    f"*.{ending}"
    for name in ("png", "jpg", "jpeg", "bmp", "gif", "webp", "tif", "tiff", "pgm", "ppm")
    for ending in (name, name.upper())
)
"""What files of images are called."""


class ImagesSource(PathsSection):
    """Folders of images: of ``path/cats/1.png`` the class is ``cats``, the first folder below the path."""

    records: ClassVar[Records] = "images"

    include: tuple[str, ...] = Field(IMAGE_NAMES, description="name patterns taken from directories")

    @property
    def labelled(self) -> bool:
        """Returns True: the folder is the label."""
        return True


class DigitsSource(SourceSection):
    """1,797 handwritten digits of 8 x 8 grey pixels, in ten classes, which scikit-learn brings along.

    They are the test part of the UCI set "Optical Recognition of Handwritten Digits" (Alpaydin and Kaynak, 1998), under
    CC BY 4.0.
    """

    records: ClassVar[Records] = "images"

    @property
    def labelled(self) -> bool:
        """Returns True: each image shows a known digit."""
        return True


class DocstringsSource(SourceSection):
    """Preferences from the standard library of the Python that runs, to try them without any file of one's own.

    The question is the head of a function or a class, the better answer the first paragraph of its docstring, the worse
    one the same words in another order.
    """

    records: ClassVar[Records] = "preferences"


SOURCE_KEYS: Mapping[str, type[SourceSection] | str] = {
    "python-stdlib": PythonSource,
    "python-stdlib-chats": PythonChatsSource,
    "python-stdlib-packages": PythonPackagesSource,
    "files": FilesSource,
    "text": TextSource,
    "jsonl": JsonlSource,
    "csv": CsvSource,
    "parquet": ParquetSource,
    "chats": ChatsSource,
    "preferences": PreferencesSource,
    "words": "trainwright.spec.sections.corpus.words:WordsSource",
    "conll": "trainwright.spec.sections.corpus.words:ConllSource",
    "pairs": "trainwright.spec.sections.corpus.pairs:PairsSource",
    "images": ImagesSource,
    "sklearn-digits": DigitsSource,
    "python-docstrings": DocstringsSource,
    "python-docstring-pairs": "trainwright.spec.sections.corpus.pairs:DocstringPairsSource",
}
