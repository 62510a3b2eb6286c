"""What is wrong with a data section and can be known without reading the corpus: each problem names its key.

Nothing heavy is imported, no file but a tokenizer and the heads of a few others is opened and no network is asked, so
that it may run before anything else does; but of a base on a hub, which was asked for when the recipe was read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trainwright.artifact.hub.base import base_folder
from trainwright.artifact.tokenizer import end_of_text_id, load_tokenizer
from trainwright.core.errors import DataError, MissingPackage, RecipeError, TrainwrightError
from trainwright.core.paths import local_path
from trainwright.core.registry import installed, load
from trainwright.spec.recipe import ANSWERED, Recipe
from trainwright.spec.sections.corpus.sources import SourceSection
from trainwright.spec.sections.data import CleanSection, DataSection
from trainwright.stages.data.corpus.entries import SkippedFile
from trainwright.stages.data.corpus.files import not_skipped, path_problem, source_entries
from trainwright.stages.data.corpus.head import broken_record, unusable_source
from trainwright.stages.data.corpus.remote import check_protocol, is_url
from trainwright.stages.data.sources import source_of

TEMPLATE = "data.chat.template"
TEMPLATE_OF = "trainwright.stages.data.chats.phase:template_of"


def problems(section: DataSection) -> tuple[TrainwrightError, ...]:
    """Returns every problem of a data section; ``where`` of each is a key of the recipe.

    They are missing paths, patterns that match nothing, a corpus without a byte, sources whose first records are no
    documents, files and first records that ``strict`` does not let be skipped, lengths that contradict each other, a
    missing tokenizer and packages that are not installed. None means that reading can begin; what stands further back
    in the files is another matter.
    """
    of_files = (*_sources(section), *_empty(section), *_skipped(section))
    records = () if of_files else tuple(_broken(section))
    if section.images is not None:
        return (*of_files, *records)
    return (*of_files, *records, *_lengths(section.clean), *_tokenizer(section), *_template(section))


def recipe_problems(recipe: Recipe, tokenizer: Path | None) -> tuple[TrainwrightError, ...]:
    """Returns the problems of the recipe's data section; ``tokenizer`` is for checks that count tokens."""
    del tokenizer
    found, base = problems(recipe.data), recipe.model.init_from
    others = tuple(problem for problem in found if str(problem.where) != TEMPLATE)
    if len(others) == len(found) or base is None or recipe.data.chat.template is not None:
        return found
    # A template that is left out is the base's, and that the base is not there is said under its own key.
    return found if _is_there(base) else others


def _is_there(base: str) -> bool:
    try:
        return base_folder(base, weights=False).exists()
    except TrainwrightError:
        return False


def _sources(section: DataSection) -> Iterator[TrainwrightError]:
    for number, settings in enumerate(section.sources):
        problems_of_paths = tuple(_source(number, settings))
        problem = None if problems_of_paths else unusable_source(number, settings)
        yield from problems_of_paths if problem is None else (problem,)


def _empty(section: DataSection) -> Iterator[TrainwrightError]:
    """No file of any source has a byte; the first one that has ends the search."""
    seen = list[str]()
    for number, settings in enumerate(section.sources):
        if any(map(is_url, source_of(settings).paths)):
            return
        try:
            for entry in source_entries(number, settings):
                if not isinstance(entry, SkippedFile) and entry.size_bytes:
                    return
                seen.append(f"{entry.name}: {entry.reason if isinstance(entry, SkippedFile) else '0 bytes'}")
        except TrainwrightError:
            return  # reported under its own key
    if seen:
        more = f" and {len(seen) - 1} more" if len(seen) > 1 else ""
        yield DataError("the corpus is empty", where="data.sources", seen=seen[0] + more, expected="some text")


def _skipped(section: DataSection) -> Iterator[TrainwrightError]:
    """Yields the first file here that cannot be read, where none may be skipped; every name is looked at for that."""
    here = (pair for pair in enumerate(section.sources) if not any(map(is_url, source_of(pair[1]).paths)))
    for number, settings in here if section.strict else ():
        try:
            skipped = next((each for each in source_entries(number, settings) if isinstance(each, SkippedFile)), None)
        except TrainwrightError:
            continue  # reported under its own key
        if skipped is not None:
            yield not_skipped(skipped).at("data.strict", seen=skipped.location)
            return


def _broken(section: DataSection) -> Iterator[TrainwrightError]:
    """Yields the first record in a head that is no document, where ``strict`` lets none be."""
    for number, settings in enumerate(section.sources) if section.strict else ():
        problem = broken_record(number, settings)
        if problem is not None:
            yield problem.at("data.strict", seen=problem.where)
            return


def _source(number: int, settings: SourceSection) -> Iterator[TrainwrightError]:
    source, key = source_of(settings), f"data.sources.{number}.kind"
    if settings.kind == "parquet":
        yield from _missing("pyarrow", key=key, needed_for="reading Parquet files")
    if settings.kind == "sklearn-digits" and not installed("sklearn"):
        yield MissingPackage("scikit-learn", needed_for="the source sklearn-digits", extra="digits").at(key)
        return
    if settings.records == "images" and not installed("PIL"):
        yield MissingPackage("pillow", needed_for="reading images", extra="data").at(key)
        return
    for order, path in enumerate(source.paths):
        if is_url(path):
            try:
                check_protocol(path)
            except TrainwrightError as error:
                seen = None if isinstance(error, MissingPackage) else path
                yield error.at(f"data.sources.{number}.paths.{order}", seen=seen)
        problem = path_problem(number, order, source)
        if problem is not None:
            yield problem


def _lengths(clean: CleanSection) -> Iterator[TrainwrightError]:
    if clean.max_characters is not None and clean.max_characters < clean.min_characters:
        yield RecipeError(
            "no document would be kept",
            where="data.clean.max_characters",
            seen=clean.max_characters,
            expected=f"{clean.min_characters} (data.clean.min_characters) or more",
        )


def _tokenizer(section: DataSection) -> Iterator[TrainwrightError]:
    key = "data.tokenizer"
    yield from _missing("tokenizers", key=key, needed_for="a tokenizer")
    if section.tokenizer.path is None:
        return
    try:
        path = local_path(section.tokenizer.path)
    except RecipeError as error:
        yield error.at(f"{key}.path")
        return
    if not path.is_file():
        expected = "a tokenizer.json"
        yield DataError("no tokenizer here", where=f"{key}.path", seen=section.tokenizer.path, expected=expected)
    elif installed("tokenizers"):
        try:
            tokenizer = load_tokenizer(path)
        except DataError as error:
            yield error.at(f"{key}.path", seen=f"{section.tokenizer.path}: {error.seen}")
            return
        try:
            end_of_text_id(tokenizer, section.tokenizer.end_of_text, where=f"{key}.end_of_text")
        except DataError as error:
            yield error


def _template(section: DataSection) -> Iterator[TrainwrightError]:
    """Yields why chats cannot become text; what is wrong with the tokenizer is reported under its own key."""
    if section.records not in ANSWERED:
        return
    yield from _missing("jinja2", key="data.chat", needed_for="chat templates")
    if installed("jinja2") and installed("tokenizers"):
        try:
            load(TEMPLATE_OF, kind="function")(section)
        except TrainwrightError as error:
            if str(error.where).startswith("data.chat"):
                yield error


def _missing(package: str, *, key: str, needed_for: str) -> Iterator[TrainwrightError]:
    if not installed(package):
        yield MissingPackage(package, needed_for=needed_for, extra="data").at(key)
