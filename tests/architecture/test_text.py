"""What the project says: of itself alone, short where it must be short, the same in both languages."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

import trainwright

MAX_README_LINES = 150
MAX_DECISION_LINES = 60

# Spelt in pieces, so that this file does not find itself.
_MACHINE_FOLDERS = ("work", "tmp", "root", "home", "farm", "opt")
_REGISTRY_HOSTS = ("pypi", "pythonhosted", "npmjs", "download.pytorch", "deb.debian", "conda.anaconda")
MACHINE_PATH = re.compile(rf"(?<![\w.~$}}:/-])/(?:{'|'.join(_MACHINE_FOLDERS)})/[\w.-]")
REGISTRY_HOST = re.compile(rf"(?:{'|'.join(map(re.escape, _REGISTRY_HOSTS))})\.(?:org|com)\b", re.IGNORECASE)


@pytest.mark.parametrize("pattern", [MACHINE_PATH, REGISTRY_HOST], ids=["machine path", "registry host"])
def test_names_no_machine_and_no_registry(tracked, repository, pattern):
    found = []
    for path in tracked:
        for number, line in enumerate(_text(path).splitlines(), start=1):
            if pattern.search(line):
                found.append(f"{path.relative_to(repository)}:{number}: {line.strip()[:100]}")
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", ["README.md", "README.zh.md"])
def test_readme_is_one_page(repository, name):
    assert len((repository / name).read_text(encoding="utf-8").splitlines()) <= MAX_README_LINES


def test_readme_is_mirrored(repository):
    assert _outline(repository / "README.md") == _outline(repository / "README.zh.md")


def test_every_chinese_page_mirrors_an_english_one(repository):
    chinese = sorted((repository / "docs" / "zh").rglob("*.md"))
    assert chinese
    for page in chinese:
        original = repository / "docs" / "en" / page.relative_to(repository / "docs" / "zh")
        assert original.is_file(), f"{page.relative_to(repository)} has no English original"
        assert _outline(original) == _outline(page), f"{page.relative_to(repository)} and its original differ"


def test_decisions_are_short_numbered_and_listed(repository):
    folder = repository / "docs" / "decisions"
    index = (folder / "README.md").read_text(encoding="utf-8")
    pages = sorted(path for path in folder.glob("*.md") if path.name != "README.md")
    assert [page.name for page in pages if not re.fullmatch(r"\d{4}-[a-z0-9-]+\.md", page.name)] == []
    assert [a.name for a, b in pairwise(pages) if a.name[:4] == b.name[:4]] == [], "two decisions share a number"
    assert [page.name for page in pages if len(_text(page).splitlines()) > MAX_DECISION_LINES] == []
    assert [page.name for page in pages if f"]({page.name})" not in index] == [], (
        "not listed in docs/decisions/README.md"
    )


def test_changelog_knows_this_version(repository):
    changelog = (repository / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{trainwright.__version__}]" in changelog or "## [Unreleased]" in changelog


def _outline(page: Path) -> list[str]:
    """What two translations share: heading levels, table shapes, and code but for its comments."""
    outline: list[str] = []
    fence = ""
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            fence = "" if fence else line
            outline.append(line)
        elif fence:
            outline.append(_code(line, fence))
        elif heading := re.match(r"#+ ", line):
            outline.append(heading[0])
        elif line.startswith("|"):
            outline.append(f"| {line.count('|') - 1} cells")
    return outline


def _code(line: str, fence: str) -> str:
    # A diagram's labels and a tree's remarks are prose: their lines are counted, not compared.
    return line.partition("#")[0].rstrip() if fence in {"```bash", "```sh", "```yaml", "```python"} else "."


def _text(path: Path) -> str:
    """The file's text; a picture or another binary file has none."""
    data = path.read_bytes()
    return "" if b"\0" in data else data.decode("utf-8")
