from __future__ import annotations

import json
import math
import re
from html.parser import HTMLParser

import pytest

from trainwright.stages.report.page import SECTIONS, render

VOID = {"meta", "link", "input"}


class Reader(HTMLParser):
    """Collects tags, attributes and text, and insists that what is opened is closed."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open and self._open[-1] not in ("script", "style"):
            self.text.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


@pytest.fixture
def page(record) -> str:
    return render(record)


def test_is_well_formed_and_complete(page):
    reader = Reader(page)
    anchors = {attributes["id"] for tag, attributes in reader.tags if tag == "section"}
    links = {attributes["href"].removeprefix("#") for tag, attributes in reader.tags if tag == "a"}
    assert len(anchors) == len(SECTIONS)
    assert links == anchors
    identities = [attributes["id"] for _, attributes in reader.tags if "id" in attributes]
    assert len(identities) == len(set(identities))


def test_asks_nobody_for_anything(page):
    assert not re.search(r"(?:https?:)?//[\w.-]+\.\w+", page.replace("http://www.w3.org/2000/svg", ""))
    reader = Reader(page)
    for tag, attributes in reader.tags:
        assert tag not in {"iframe", "img", "object", "embed", "base"}
        assert not {"src", "srcset", "action", "poster"} & attributes.keys()
    assert "url(" not in page
    assert "@import" not in page


def test_its_numbers_come_from_the_artefacts(page, fake):
    words = Reader(page).words
    measured = fake.evaluation()["splits"]["test"]
    for expected in (
        f"{measured['metrics']['bits_per_byte']['value']:.4f}",
        f"{measured['metrics']['loss']['value']:.4f}",
        f"{measured['count']:,}",
        "gzip -9 1.783",
        "best n-gram 1.645",
        "4,722,944",
        "18,420 tokens/s",
        "4 min 00 s",  # the sum of the phases
        "616 MiB measured of 11.72 GiB",
        "+4 % time and +2 % peak memory",
        "$0.0018",
        "on a rented l4",
        "1,790 (30.06 MiB)",
        "broken: not UTF-8",
        "Example 9000 (2 cores)",
        "432 GFLOP/s",
        "has no bf16",
        "Training took 4 % longer than predicted",
        "-8 %",
        "111111111111",  # the plan's fingerprint
    ):
        assert expected in words, expected


def test_other_artefacts_give_other_numbers(tmp_path, recipe, fake):
    changed = fake.evaluation()
    changed["splits"]["test"]["metrics"]["bits_per_byte"]["value"] = 0.9876
    record = fake.run(tmp_path, recipe, replace={"evaluate": changed})
    assert "0.988" in render(record)


def test_every_chart_has_a_title_axes_and_words(page):
    reader = Reader(page)
    drawings = [attributes for tag, attributes in reader.tags if tag == "svg"]
    assert len(drawings) >= 20
    assert all(attributes["role"] == "img" and len(attributes["aria-label"]) > 20 for attributes in drawings)
    assert page.count("<figcaption>") == page.count("<figure")


def test_text_from_outside_stays_text(tmp_path, fake):
    attack = '</pre><script>alert("x")</script><img src=x onerror=alert(1)>&amp;'
    bad = fake.evaluation()
    bad["completions"][0] |= {
        "prompt": attack,
        "text": attack + "tail",
        "overlap": {"text": attack, "size_bytes": 1, "share": 1},
    }
    record = fake.run(tmp_path, fake.recipe(evaluate={"prompts": [attack]}), replace={"evaluate": bad})
    page = render(record)
    assert page.count("<script>") == 1
    assert "<img" not in page
    assert attack in Reader(page).words


def test_an_attack_in_a_label_or_a_tooltip_stays_text(tmp_path, recipe, fake):
    attack = "'><script>alert(1)</script>\""
    bad = fake.evaluation()
    bad["splits"] = {attack: bad["splits"]["test"]}
    bad["splits"][attack]["baselines"][0]["name"] = attack
    page = render(fake.run(tmp_path, recipe, replace={"evaluate": bad}))
    assert page.count("<script") == 1
    hovers = [json.loads(attributes["data-hover"]) for _, attributes in Reader(page).tags if "data-hover" in attributes]
    assert any(attack in json.dumps(rows, ensure_ascii=False).replace('\\"', '"') for rows in hovers)


@pytest.mark.parametrize("missing", ["doctor", "plan", "data", "train", "evaluate", "audit", "serve"])
def test_a_missing_stage_is_named_with_the_command_that_makes_it(tmp_path, recipe, missing, fake):
    words = Reader(render(fake.run(tmp_path, recipe, without=(missing,)))).words
    assert f"{missing} missing" in words
    assert f"trainwright {missing}" in words


def test_nothing_at_all(tmp_path, recipe, fake):
    everything = ("doctor", "plan", "data", "train", "evaluate", "audit", "serve")
    words = Reader(render(fake.run(tmp_path, recipe, without=everything))).words
    assert "has not been trained yet" in words
    assert "trainwright plan RECIPE" in words


def test_a_run_that_beats_nothing_says_so(tmp_path, recipe, fake):
    changed = fake.evaluation()
    for split in changed["splits"].values():
        split["metrics"]["bits_per_byte"]["value"] = 7.9
    page = render(fake.run(tmp_path, recipe, replace={"evaluate": changed}))
    assert re.search(r'<li class="bad"><span class="question">What is it worth', page)


def test_unknown_measurements_are_said_as_unknown(tmp_path, recipe, fake):
    training = fake.summary() | {"mfu": None, "validation": None}
    words = Reader(render(fake.run(tmp_path, recipe, replace={"train": training}))).words
    assert "unknown" in words


@pytest.mark.parametrize("values", [[math.nan] * 5, [2.0], [], [3.0, math.nan, math.inf, 1.0]])
def test_any_curve(tmp_path, recipe, values, fake):
    record = fake.run(tmp_path, recipe, without=("train",))
    other = fake.run(tmp_path / "other", recipe)
    path = other.artifacts["train"].path / "events.jsonl"
    lines = [
        json.dumps({"run": "r", "t_s": 0.0, "kind": "metric", "name": "train/loss", "value": value, "step": step})
        for step, value in enumerate(values, start=1)
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    Reader(render(type(record)(recipe=recipe, artifacts=other.artifacts)))
