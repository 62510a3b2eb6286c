from dataclasses import replace

from fixtures.planned_models import GPT2, LLAMA
from trainwright.planner.parameters import block_matrix_parameters
from trainwright.planner.traffic import block_traffic


def test_a_block_is_counted_by_hand():
    # D 256, F 768, Q = K = 256, 2 layers, fp32: 10 D + 4 (Q + K) + 2 Q + 5 F elements of 4 bytes for each token.
    elements = 10 * 256 + 4 * 512 + 2 * 256 + 5 * 768
    assert block_traffic(LLAMA, tokens=100, dtype="fp32").forward_bytes == 2 * 4 * elements * 100
    plain = 10 * 256 + 2 * 256 + 2 * 768
    assert block_traffic(GPT2, tokens=100, dtype="fp32").forward_bytes == 2 * 4 * plain * 100


def test_casts_come_with_reduced_precision_and_not_with_tokens(shape):
    one, two = (block_traffic(shape, tokens=tokens, dtype="bf16") for tokens in (1000, 2000))
    assert one.cast_bytes == two.cast_bytes == 6 * block_matrix_parameters(shape)
    assert two.forward_bytes == 2 * one.forward_bytes
    assert block_traffic(shape, tokens=1000, dtype="fp32").cast_bytes == 0


def test_traffic_grows_with_layers_alone():
    deep = block_traffic(replace(LLAMA, layers=6), tokens=64, dtype="fp32")
    assert deep.backward_bytes == 3 * block_traffic(LLAMA, tokens=64, dtype="fp32").backward_bytes
    assert deep.forward_operations == 3 * block_traffic(LLAMA, tokens=64, dtype="fp32").forward_operations
