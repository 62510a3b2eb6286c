from __future__ import annotations

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from trainwright.core.errors import RecipeError
from trainwright.spec.sections.data import CleanSection
from trainwright.stages.data.cleaning.cleaner import Cleaner
from trainwright.stages.data.corpus.digests import outside_digests
from trainwright.stages.data.plug_ins import plug_ins

FILTER = """
from my_filters.words import BAD

def short(text):
    if "boom" in text:
        raise ValueError("boom\\nthat is: \\x1b[31mboom")
    if text == "exit":
        raise SystemExit(0)
    if "number" in text:
        return 3
    return "too short" if len(text) < {limit} else "bad words" if BAD in text else None
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    folder = tmp_path / "code" / "my_filters"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(FILTER.format(limit=5))
    (folder / "words.py").write_text("BAD = 'xxx'\n")
    monkeypatch.syspath_prepend(str(folder.parent))
    yield folder
    for name in ("my_filters", "my_filters.words"):
        sys.modules.pop(name, None)


def test_only_code_from_outside_is_a_plug_in(section, monkeypatch):
    for name in "ab":
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(x=lambda text: None))
    source = {"kind": "python-stdlib"}
    assert plug_ins(section(source, clean={"filters": ["long-lines"]})) == ()
    rules = section(source, clean={"filters": ["b:x", "long-lines", "a:x", "b:x"]})
    assert plug_ins(rules) == ("a:x", "b:x")


def test_a_filter_that_fails_is_named_with_its_key_and_the_text(package):
    cleaner = Cleaner(CleanSection(filters=("few-letters", "my_filters:short")))
    assert cleaner("abc") == ("abc", "too short")
    assert cleaner("abcdef") == ("abcdef", None)
    failed = r"^data\.clean\.filters\.1: the plug-in my_filters:short failed on a text that begins "
    with pytest.raises(RecipeError, match=failed + r"'boom here' \(seen ValueError: boom\)"):
        cleaner("boom here")
    with pytest.raises(RecipeError, match=failed + "'exit' \\(seen SystemExit: 0\\)"):
        cleaner("exit")
    with pytest.raises(RecipeError, match=r"seen TypeError: a filter returns None or a reason to drop, not 3\)"):
        cleaner("number")


def test_the_code_of_a_plug_in_is_a_part_of_the_address(package, tmp_path, section):
    (tmp_path / "a.txt").write_text("some text")
    source = {"kind": "files", "paths": [str(tmp_path / "a.txt")]}
    assert outside_digests(section(source), cache=None).keys() == {"corpus"}
    rules = section(source, clean={"filters": ["my_filters:short"]})
    before = outside_digests(rules, cache=None)
    assert before["corpus"] == outside_digests(section(source), cache=None)["corpus"]
    (package / "words.py").write_text("BAD = 'yyy'\n")  # not the module that the recipe names, but one it uses
    after = outside_digests(rules, cache=None)
    assert after["corpus"] == before["corpus"]
    assert after["plug-ins"] != before["plug-ins"]


RECIPE = """
name: mine
model: {{layers: 1, width: 64, heads: 1}}
data:
  sources: [{{kind: files, paths: ["{corpus}"]}}]
  clean: {{filters: ["my_filters:short"]}}
  split: {{train: 1, validation: 0, test: 0}}
  tokenizer: {{vocabulary: 300}}
"""


def trainwright(package, *arguments):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(package.parent), *sys.path])}
    command = [sys.executable, "-m", "trainwright", *arguments]
    return subprocess.run(command, env=environment, check=False, capture_output=True, text=True)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_filter_that_exits_is_no_success(package, tmp_path, workers):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "a").write_text("a good text")
    (corpus / "b").write_text("exit")
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(corpus=corpus))
    sources = ", ".join(f"{{kind: files, paths: ['{corpus / name}']}}" for name in "ab")  # a job for each
    where = (str(tmp_path / "recipe.yaml"), "--workspace", str(tmp_path / "runs"))
    done = trainwright(package, "data", *where, f"data.sources=[{sources}]", f"data.exec.workers={workers}")
    assert done.returncode == 2, done.stderr
    line = "data.clean.filters.0: the plug-in my_filters:short failed on a text that begins 'exit' (seen SystemExit: 0)"
    assert line in done.stderr.splitlines()[-1]
    assert not list((tmp_path / "runs").glob("data-*/manifest.json"))


def test_a_filter_s_module_that_exits_is_refused_with_the_recipe(package, tmp_path):
    (package / "__init__.py").write_text("import sys\nsys.exit(0)\n")
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(corpus=package))
    done = trainwright(package, "config", "validate", str(tmp_path / "recipe.yaml"))
    assert done.returncode == 2, done.stdout
    line = "data.clean.filters.0: importing this filter fails (seen 'my_filters:short', SystemExit: 0)"
    assert line in done.stderr.splitlines()[0]


def test_another_filter_makes_another_dataset(package, tmp_path):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for name in ("a", "ab", "abc", "abcd", "abcdef", "abcdefgh"):
        (corpus / name).write_text(name)
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(corpus=corpus))

    def documents():
        done = trainwright(package, "data", str(tmp_path / "recipe.yaml"), "--workspace", str(tmp_path / "runs"))
        assert done.returncode == 0, done.stderr
        manifests = (json.loads(path.read_text()) for path in (tmp_path / "runs").glob("data-*/manifest.json"))
        return sorted(manifest["summary"]["documents"] for manifest in manifests)

    assert documents() == [2]
    assert documents() == [2]
    (package / "__init__.py").write_text(FILTER.format(limit=3))
    assert documents() == [2, 4]
    (package / "__init__.py").write_text(FILTER.format(limit=5))
    assert documents() == [2, 4]
    neighbour = package.parent / "neighbour.py"
    (package / "words.py").write_text("from neighbour import BAD\n")
    neighbour.write_text("BAD = 'gh'\n")
    assert documents() == [1, 2, 4]
    neighbour.write_text("BAD = 'xxx'\n")
    assert documents() == [1, 2, 2, 4]
