"""litgpt beside ours: its model, its loss and Lightning Fabric, as its own pre-training loop uses them.

Runs in the environment of `make peers`, started by ``contestants.py`` with one JSON argument; prints one line of JSON:
seconds of each step but the first, by the clock and of the processors.
"""

from __future__ import annotations

import json
import sys
import time
from itertools import pairwise

import lightning as L
import torch
from litgpt.config import Config
from litgpt.model import GPT
from litgpt.utils import chunked_cross_entropy


def main(question: dict[str, object]) -> dict[str, list[float]]:
    """Trains on random tokens; returns the seconds."""
    torch.set_num_threads(int(str(question["threads"])))
    sequences, tokens, steps = (int(str(question[name])) for name in ("sequences", "tokens", "steps"))
    vocabulary, gated = int(str(question["vocabulary"])), bool(question["gated"])
    config = Config(
        name="bench",
        block_size=tokens,
        vocab_size=vocabulary,
        padded_vocab_size=vocabulary,
        n_layer=int(str(question["layers"])),
        n_head=int(str(question["heads"])),
        n_embd=int(str(question["width"])),
        intermediate_size=int(str(question["ffn_width"])),
        norm_class_name="RMSNorm" if gated else "LayerNorm",
        mlp_class_name="LLaMAMLP" if gated else "GptNeoxMLP",
        parallel_residual=False,
        rotary_percentage=1.0,
        bias=not gated,
    )
    fabric = L.Fabric(accelerator="cpu", devices=1, precision="bf16-mixed" if question["precision"] == "bf16" else None)
    with fabric.init_module(empty_init=False):
        model = GPT(config)
    if question["tied"]:
        model.lm_head.weight = model.transformer.wte.weight
    network = torch.compile(model) if question["compiled"] else model
    network = fabric.setup(network)
    optimizer = fabric.setup_optimizers(torch.optim.AdamW(network.parameters(), lr=1e-4, weight_decay=0.0, fused=True))
    batches = torch.randint(1, vocabulary, (steps, sequences, tokens + 1), generator=torch.Generator().manual_seed(0))
    stamps = []
    for batch in batches:
        logits = network(batch[:, :-1].contiguous())
        loss = chunked_cross_entropy(logits, batch[:, 1:].contiguous(), chunk_size=0)
        fabric.backward(loss)
        fabric.clip_gradients(network, optimizer, max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()
        stamps.append((time.perf_counter(), time.process_time()))
    pairs = list(pairwise(stamps))
    return {
        "wall_s": [after[0] - before[0] for before, after in pairs],
        "cpu_s": [after[1] - before[1] for before, after in pairs],
    }


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
