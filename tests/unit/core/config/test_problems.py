from __future__ import annotations

import pytest

from trainwright.core.config.load import load
from trainwright.core.errors import RecipeError
from trainwright.spec.recipe import Recipe


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "trian: {}",
            (
                "r.yaml:2:1: trian: unknown key (expected one of name, sources, rent_on, train, extra); did you mean "
                "'train'?"
            ),
        ),
        (
            "lr: 1",
            (
                "r.yaml:2:1: lr: unknown key (expected one of name, sources, rent_on, train, extra); did you mean "
                "'train.optimizer.lr'?"
            ),
        ),
        ("train: {lr: 1}", "r.yaml:2:9: train.lr: unknown key; did you mean 'train.optimizer.lr'?"),
        ("train: 3", "r.yaml:2:1: train: wrong value (seen 3, expected a mapping)"),
        ("train:", "r.yaml:2:1: train: wrong value (seen null, expected a mapping)"),
        ("train: {compile: 2}", "r.yaml:2:9: train.compile: wrong value (seen 2, expected true or false)"),
        (
            "train: {sequence_tokens: 1.5}",
            ("r.yaml:2:9: train.sequence_tokens: wrong value (seen 1.5, expected a whole number)"),
        ),
        (
            "train: {optimizer: {lr: 2}}",
            ("r.yaml:2:21: train.optimizer.lr: out of range (seen 2, expected a number <= 1)"),
        ),
        (
            "train: {optimizer: {name: adam}}",
            (
                "r.yaml:2:21: train.optimizer.name: unknown value (seen 'adam', expected 'adamw' or 'muon'); did you "
                "mean 'adamw'?"
            ),
        ),
        ("train: {optimizer: {betas: [0.9]}}", "r.yaml:2:21: train.optimizer.betas.1: missing (expected number)"),
        (
            "train: {micro_batch: many}",
            ("r.yaml:2:9: train.micro_batch: wrong value (seen 'many', expected a whole number or 'auto')"),
        ),
        ("train: {weights: x}", "r.yaml:2:9: train.weights: wrong value (seen 'x', expected a whole number or a list)"),
        ("train: {weights: [1, x]}", "r.yaml:2:22: train.weights.1: wrong value (seen 'x', expected a whole number)"),
        (
            "train: {batch_tokens: 3 apples}",
            (
                "r.yaml:2:9: train.batch_tokens: unknown multiplier (seen '3 apples', expected a count such as "
                "'300B', '1.5M' or '4096')"
            ),
        ),
        ("train: {batch_tokens: 1000}", "r.yaml:2:9: train: batch_tokens (1000) is not a multiple of sequence_tokens"),
        (
            "sources: [{kind: filez, paths: [a]}]",
            (
                "r.yaml:2:12: sources.0.kind: unknown value (seen 'filez', expected 'files', 'jsonl' or "
                "'package.module:name'); did you mean 'files'?"
            ),
        ),
        (
            "sources: [{paths: [a]}]",
            (
                "r.yaml:2:11: sources.0.kind: missing (expected 'files', 'jsonl' or 'package.module:name': which kind "
                "this is)"
            ),
        ),
        (
            "sources: [filez]",
            (
                "r.yaml:2:11: sources.0: unknown value (seen 'filez', expected 'files', 'jsonl' or "
                "'package.module:name'); did you mean 'files'?"
            ),
        ),
        (
            "sources: [{kind: files, paths: [a], text_key: b}]",
            (
                "r.yaml:2:37: sources.0.text_key: unknown key (expected one of kind, paths, include); it goes with "
                "kind: jsonl"
            ),
        ),
        (
            "sources: [{kind: files, paths: []}]",
            ("r.yaml:2:25: sources.0.paths: out of range (seen [], expected at least 1 items)"),
        ),
        (
            "sources: [{kind: files, paths: [7]}]",
            ("r.yaml:2:33: sources.0.paths.0: wrong value (seen 7, expected a text)"),
        ),
        (
            "sources: [{kind: files}]",
            ("r.yaml:2:11: sources.0.paths: missing (expected list of text of length >= 1: files to read)"),
        ),
        ("extra: {a: b}", "r.yaml:2:9: extra.a: wrong value (seen 'b', expected a whole number)"),
    ],
)
def test_one_mistake_gives_one_line(lines_of, text, line):
    assert lines_of(f"name: x\n{text}\n") == [line]


def test_a_validator_that_names_keys_is_placed_at_the_one_written_last(lines_of):
    assert lines_of("name: x\ntrain: {batch_tokens: 1024}\n", "train.sequence_tokens=100") == [
        "override train.sequence_tokens: train: batch_tokens (1024) is not a multiple of sequence_tokens"
    ]


def test_a_validator_may_raise_recipe_errors(lines_of):
    assert lines_of("name: bad\ntrain: {compile: true}\n") == [
        "r.yaml:1:1: name: too bad (seen bad); choose another",
        "r.yaml:2:1: train: worse",
    ]


def test_a_validator_that_names_no_key_is_placed_at_what_the_last_layer_wrote(lines_of):
    assert lines_of("name: x\nextra: {a: 1}\n", "extra.b=13") == ["override extra.b: extra: unlucky"]
    assert lines_of("name: x\nextra: {a: 1, b: 13}\n") == ["r.yaml:2:1: extra: unlucky"]


def test_a_kind_that_is_no_word_is_shown_as_written(lines_of):
    (line,) = lines_of("name: x\nsources: [{kind: null}]\n")
    assert "sources.0.kind: wrong value (seen null, expected a text)" in line


def test_null_is_expected_where_it_is_allowed(lines_of):
    assert lines_of("name: x\ntrain: {limit: no}\n") == [
        "r.yaml:2:9: train.limit: wrong value (seen 'no', expected a number or null)"
    ]


def test_long_values_are_cut(lines_of):
    (line,) = lines_of(f"name: x\ntrain: {{sequence_tokens: {'z' * 500}}}\n")
    assert len(line) < 150


def test_a_name_that_is_the_beginning_of_others_is_taken_for_those(tmp_path):
    file = tmp_path / "r.yaml"
    file.write_text("name: x\ntrain: {exec: {layout: {dp: 2}}}\n")
    with pytest.raises(RecipeError) as raised:
        load(Recipe, files=[file], preset=None, overrides=[], environ={})
    (line,) = [line for line in str(raised.value).splitlines() if "layout.dp: unknown key" in line]
    assert line.endswith("; did you mean 'dp_replicate' or 'dp_shard'?")


def test_of_a_unions_alternatives_the_validator_of_the_one_that_was_meant_is_told() -> None:
    with pytest.raises(RecipeError) as caught:
        load(
            Recipe,
            overrides=["name=x", "train.exec.layout={dp_replicate: 2, zero_stage: 2}"],
            environ={},
            ignore=frozenset(),
        )
    (line,) = [line for line in str(caught.value).splitlines() if "layout" in line]
    assert line == (
        "override train.exec.layout: zero_stage=2 does nothing without dp_shard or cp: set more there, or leave "
        "zero_stage out"
    )
