"""Full training steps of Hugging Face's Llama on fake tensors, against torch's own memory tracker."""

from dataclasses import replace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from transformers import LlamaConfig, LlamaForCausalLM

from trainwright.hardware.catalogue.nodes import cluster
from trainwright.hardware.catalogue.stacks import read_stack
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.forecast.memory.table import predict_memory
from trainwright.runtime.memory import LiveBytes
from trainwright.spec.model import ModelSpec
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import Adapter, ParallelPlan, Workload

LAYERS, WIDTH, HEADS, INNER, VOCABULARY, RANK = 4, 1024, 16, 2816, 32000, 16
SPEC = ModelSpec(
    family="llama",
    layers=LAYERS,
    width=WIDTH,
    heads=HEADS,
    kv_heads=HEADS,
    head_size=WIDTH // HEADS,
    ffn_width=INNER,
    vocabulary=VOCABULARY,
    context_tokens=4096,
    tied=False,
    gated=True,
    norm="rmsnorm",
    norm_epsilon=1e-6,
    positions="rope",
    rope_theta=1e4,
    bias=False,
    activation="silu",
)


class LowRank(torch.nn.Module):
    """A frozen product with an fp32 adapter beside it, which casts its input as peft does."""

    def __init__(self, base):
        super().__init__()
        self.base = base
        self.down = torch.nn.Parameter(torch.zeros(RANK, base.in_features, dtype=torch.float32))
        self.up = torch.nn.Parameter(torch.zeros(base.out_features, RANK, dtype=torch.float32))

    def forward(self, x):
        return self.base(x) + (x.float() @ self.down.T @ self.up.T).to(x.dtype)


def build(dtype, *, recompute, adapted, tokens):
    torch.set_default_dtype(dtype)
    try:
        model = LlamaForCausalLM(
            LlamaConfig(
                num_hidden_layers=LAYERS,
                hidden_size=WIDTH,
                intermediate_size=INNER,
                num_attention_heads=HEADS,
                num_key_value_heads=HEADS,
                vocab_size=VOCABULARY,
                max_position_embeddings=tokens,
                use_cache=False,
                attn_implementation="sdpa",
            )
        )
    finally:
        torch.set_default_dtype(torch.float32)
    if adapted:
        model.requires_grad_(False)
        for layer in model.model.layers:
            layer.self_attn.q_proj = LowRank(layer.self_attn.q_proj)
            layer.self_attn.v_proj = LowRank(layer.self_attn.v_proj)
    model.train()
    if recompute:
        model.activation_checkpointing_enable()
    return model


def tracked_bytes(dtype, sequences, tokens, *, recompute=False, adapted=False):
    """The peak of the second step, when the optimizer's state is there."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = build(dtype, recompute=recompute, adapted=adapted, tokens=tokens)
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(trained, foreach=True)
        ids = torch.zeros(sequences, tokens, dtype=torch.long)
        tracker = LiveBytes() if adapted else MemTracker()  # torch's own takes no frozen parameters
        if not adapted:
            tracker.track_external(model, optimizer)
        with tracker:
            for _ in range(2):
                model(input_ids=ids, labels=ids).loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                if not adapted:
                    tracker.reset_mod_stats()
        if adapted:
            return tracker.peak_bytes + sum(each.numel() * each.element_size() for each in model.parameters())
        (peak,) = tracker.get_tracker_snapshot("peak").values()
        return peak["Total"]


def predicted_bytes(dtype, sequences, tokens, *, recompute=False, adapted=False):
    """The table of Hugging Face's stack without fitted numbers, at this release's three copies of the logits."""
    reduced = dtype == torch.bfloat16
    adapter = Adapter(rank=RANK, targets=("query", "value"), frozen="bf16" if reduced else "fp32") if adapted else None
    work = Workload(
        sequence_tokens=tokens,
        batch_tokens=sequences * tokens,
        steps=1,
        precision="bf16" if reduced else "fp32",
        optimizer="adamw",
        states="pure" if reduced else "fp32",
        adapter=adapter,
    )
    on = cluster("a100-sxm-80gb")
    on = replace(on, node=replace(on.node, device=replace(on.device, compute_capability=None)))
    stack = read_stack("hf-trainer")
    stack = replace(stack, memory=replace(stack.memory, activations=1.0, workspace_bytes=0.0, logit_bytes=12.0))
    layouts = Layouts.of([ParallelPlan(micro_batch_sequences=sequences)], ["full" if recompute else "none"], work)
    return predict_memory(RunSpec(model=SPEC, workload=work, cluster=on, stack=stack), layouts).allocated_bytes[0]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "fp32"])
@pytest.mark.parametrize("recompute", [False, True], ids=["none", "full"])
@pytest.mark.parametrize(("sequences", "tokens"), [(1, 256), (8, 512), (4, 2048)])
def test_full_training(dtype, recompute, sequences, tokens):
    real = tracked_bytes(dtype, sequences, tokens, recompute=recompute)
    assert predicted_bytes(dtype, sequences, tokens, recompute=recompute) == pytest.approx(real, rel=0.06)


@pytest.mark.slow
@pytest.mark.parametrize("recompute", [False, True], ids=["none", "full"])
def test_low_rank_adapters(recompute):
    real = tracked_bytes(torch.bfloat16, 4, 2048, recompute=recompute, adapted=True)
    assert predicted_bytes(torch.bfloat16, 4, 2048, recompute=recompute, adapted=True) == pytest.approx(real, rel=0.06)
