from __future__ import annotations

import pytest

SOURCES = "name: x\nsources:\n  - {kind: files, paths: [a], include: ['*.py']}\n  - {kind: jsonl, paths: [b]}\n"


@pytest.mark.parametrize(
    ("override", "paths"),
    [
        ("sources.0.paths=[c, d]", ("c", "d")),
        ("sources.0.paths=['*.py', \"no: x\"]", ("*.py", "no: x")),
        ("sources.0.paths.0=*.py", ("*.py",)),
        ("sources.0.paths.0=a: b # c", ("a: b # c",)),
        ("sources.0.paths.0='5'", ("5",)),
        ("sources.0.paths.0=&x", ("&x",)),
        ("sources.0.paths.0=s3://bucket/{a,b}=c", ("s3://bucket/{a,b}=c",)),
        ("sources.0.paths.1=second", ("a", "second")),
    ],
)
def test_overrides_set_items_and_take_any_text(read, override, paths):
    assert read(SOURCES, override).value.sources[0].paths == paths


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("train.weights=null", None),
        ("train.weights=", None),
        ("train.weights=0o17", 15),
        ("train.weights=[1,2]", [1, 2]),
        ("train.micro_batch=4", 4),
        ("train.micro_batch=auto", "auto"),
        ("train.optimizer={lr: 0.5, name: muon}", 0.5),
        ("extra.seven=7", {"seven": 7}),
        ("extra={a: 1}", {"a": 1}),
    ],
)
def test_overrides_have_yaml_values(read, override, expected):
    value = read("name: x", override).value
    key = override.partition("=")[0]
    for part in key.split(".")[:2] if key.startswith("train") else ["extra"]:
        value = getattr(value, part)
    assert getattr(value, "lr", value) == expected


def test_later_overrides_win_over_earlier_ones(read):
    assert read("name: x", "name=a", "name=b").value.name == "b"


def test_an_item_of_a_default_list_can_be_changed(read):
    loaded = read("name: x", "rent_on.1=h100", env={"TRAINWRIGHT_RENT_ON__2": "h200"})
    assert loaded.value.rent_on == ("t4", "h100", "h200")
    assert [str(loaded.origins[f"rent_on.{index}"]) for index in range(3)] == [
        "default",
        "override rent_on.1",
        "environment variable TRAINWRIGHT_RENT_ON__2",
    ]


def test_ten_items_are_appended_in_order(read):
    env = {f"TRAINWRIGHT_RENT_ON__{index}": f"d{index}" for index in range(12)}
    assert read("name: x", env=env).value.rent_on == tuple(f"d{index}" for index in range(12))


def test_a_list_can_begin_with_an_override(read):
    loaded = read("name: x", "sources.0.kind=jsonl", "sources.0.paths=[a]")
    assert loaded.value.sources[0].text_key == "text"


def test_lists_replace_and_mappings_merge(read):
    loaded = read(SOURCES + "extra: {a: 1, b: 2}\n", more=("sources: [{kind: jsonl, paths: [c]}]\nextra: {b: 3}\n",))
    assert [source.paths for source in loaded.value.sources] == [("c",)]
    assert loaded.value.extra == {"a": 1, "b": 3}


def test_another_kind_drops_what_only_the_former_kind_has(read):
    source = read(SOURCES, "sources.0.kind=jsonl", "sources.0.text_key=body").value.sources[0]
    assert (source.kind, source.paths, source.text_key) == ("jsonl", ("a",), "body")


def test_another_kind_keeps_a_key_that_no_kind_has_so_that_it_is_reported(lines_of):
    text = "name: x\nsources:\n  - kind: files\n    paths: [a]\n    pathz: [b]\n"
    assert lines_of(text, "sources.0.kind=jsonl") == [
        "r.yaml:5:5: sources.0.pathz: unknown key (expected one of kind, paths, text_key); did you mean 'paths'?"
    ]


def test_the_same_kind_again_drops_nothing(read):
    assert read(SOURCES, "sources.0.kind=files").value.sources[0].include == ("*.py",)


def test_an_override_replaces_a_scalar_by_a_section(read):
    assert read("name: x\ntrain:\n", "train.compile=true").value.train.compile is True


def test_a_broken_value_names_its_override(lines_of):
    first, *_ = lines_of("name: x", "rent_on=[a")
    assert first.startswith("override rent_on: not valid YAML: while parsing a flow sequence")


def test_a_key_twice_in_an_override_is_refused(lines_of):
    assert "written twice" in lines_of("name: x", "extra={a: 1, a: 2}")[0]
