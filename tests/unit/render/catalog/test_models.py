from __future__ import annotations

from fixtures.page import WrittenPage
from trainwright.hardware.catalogue.models import published_model
from trainwright.hardware.catalogue.stacks import read_stack
from trainwright.render.catalog.models import model_document, show_models, show_stacks, stack_document


def test_active_parameters_are_shown_where_they_differ():
    page = WrittenPage()
    show_models([published_model("llama3-8b"), published_model("mixtral-8x7b"), published_model("resnet50")], page)
    dense, sparse, image = page.tables["name"]
    assert dense[2] == "" and sparse[2] != "" and image[3:6] == ("", "", "")


def test_the_document_counts_a_dense_model_once():
    document = model_document(published_model("llama3-8b"))
    assert document["parameters"] == document["active_parameters"] == 8_030_261_248


def test_parameters_and_active_ones_leave_the_same_blocks_out():
    document = model_document(published_model("deepseek-v3"))
    # arXiv 2412.19437: 671B, 37B of them for a token, without multi-token prediction.
    assert round(document["parameters"] / 1e9) == 671 and 37.5e9 < document["active_parameters"] < 37.6e9


def test_a_stack_shows_the_methods_that_it_has():
    page = WrittenPage()
    show_stacks([read_stack("megatron-bridge"), read_stack("default")], page)
    assert [row[-2] for row in page.tables["name"]] == ["full, lora", "full, lora, qlora"]
    assert page.tables["name"][0][5] == 0
    show_stacks([read_stack("hf-peft")], page)
    assert page.tables["name"][-1][4:6] == ("of hf-trainer", "of hf-trainer")
    assert stack_document(read_stack("llm-c"))["runs"].families == ("gpt2",)


def test_a_stack_without_fitted_rows_shows_none():
    page, stack = WrittenPage(), read_stack("megatron-core")
    show_stacks([stack], page)
    (row,) = page.tables["name"]
    assert row[0] == "megatron-core" and row[2].startswith("x 1.") and stack_document(stack)["fit"] == stack.fit
