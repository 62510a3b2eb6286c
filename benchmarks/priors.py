"""What the fit of ``fit_time.py`` starts from: a value, a width and a source for each number."""

from __future__ import annotations

MAMF = "maximum achievable matmul FLOP/s, stas00/ml-engineering@744d01e"
FLASH_2 = "causal, heads of 128, forward and backward (arXiv 2307.08691, figures 5 to 7, recall)"
ZYPHRA = "H100's FlashAttention-2 (rocm.blogs.amd.com/ecosystems-and-partners/zyphra, 2024-12-10)"
MATMUL: dict[str, tuple[float, str]] = {
    "hopper": (0.80, f"H100 SXM 794 of 989 TFLOP/s: {MAMF}"),
    "ampere": (0.87, f"A100 SXM 271 of 312 TFLOP/s: {MAMF}"),
    "blackwell": (0.75, f"B200 77.6 %, GB200 72.9 %: {MAMF}"),
    "rocm": (0.55, f"MI300X 51 %, MI325X 60 %: {MAMF}"),
    "hpu": (0.85, f"Gaudi2 97 %, Gaudi3 74 %: {MAMF}"),
}
"""Share of the dense bf16 peak that matrix products alone reach, by generation: what products are fitted from, and what
devices' own shares are held against (``[efficiency.matmul]``). One that changes takes a fit that is written."""
PRIORS: dict[str, tuple[float, float, str]] = {
    "products.hopper": (MATMUL["hopper"][0], 0.06, MATMUL["hopper"][1]),
    "products.ampere": (MATMUL["ampere"][0], 0.06, MATMUL["ampere"][1]),
    "products.blackwell": (MATMUL["blackwell"][0], 0.06, MATMUL["blackwell"][1]),
    "products.rocm": (MATMUL["rocm"][0], 0.1, MATMUL["rocm"][1]),
    "products.tpu": (0.85, 0.06, f"TPU v6e 96.9 %: {MAMF}; older ones unknown"),
    "products.ampere-rtx": (0.85, 0.06, "as A100"),
    "products.ada": (0.75, 0.06, "default"),
    "products.volta": (0.75, 0.1, "default: no measurement of products alone"),
    "products.cores": (0.9, 0.06, "SGEMM of large matrices on V100: 14.1 of 15.7 TFLOP/s (recall); no tensor cores"),
    "products.npu": (0.70, 0.06, "default"),
    "products.neuron": (0.70, 0.06, "default"),
    "products.hpu": (MATMUL["hpu"][0], 0.06, MATMUL["hpu"][1]),
    "products.default": (0.70, 0.06, "default"),
    "attention.ampere-flash-1": (0.40, 0.1, f"105 TFLOP/s of 312: {FLASH_2}"),
    "attention.ampere-flash-2": (0.68, 0.1, f"185 TFLOP/s of 312: {FLASH_2}"),
    "attention.hopper-flash-1": (0.25, 0.2, "as on Ampere, with Hopper's memory: default"),
    "attention.hopper-flash-2": (0.42, 0.1, f"335 TFLOP/s of 989: {FLASH_2}"),
    "attention.hopper-cudnn": (0.70, 0.15, "550 TFLOP/s of 989, as FlashAttention-3 (arXiv 2407.08608, figures 5, 6)"),
    "attention.blackwell-cudnn": (0.60, 0.2, "1,000 TFLOP/s of 2,250 (recall)"),
    "attention.rocm": (0.48, 0.15, f"345 of 1,307 TFLOP/s: backward 3 % faster than {ZYPHRA}"),
    "attention.default": (0.6, 0.2, "default"),
    "ramp": (400.0, 0.3, f"85 % of the rate at 2,048 tokens: {FLASH_2}"),
    "precisions.fp8": (0.85, 0.12, "default: scaling and casts"),
    "precisions.nvfp4": (0.6, 0.2, "default"),
    "precisions.default": (1.0, 0.001, "by definition"),
    "precisions.tf32": (1.0, 0.1, "default"),
    "traffic.eager": (1.8, 0.2, "default: one kernel for each line"),
    "traffic.fused": (1.0, 0.12, "default"),
    "traffic.compiled": (1.0, 0.12, "default"),
    "tiles": (1.0, 0.02, "whole waves of tiles, by definition"),
    "unaligned": (0.85, 0.1, "NVIDIA's matrix multiplication guide, figure 2"),
    "operands": (1.0, 0.3, "default"),
    "scores": (1.0, 0.2, "counted, kernel by kernel"),
    "encoder": (1.0, 0.3, "counted, kernel by kernel"),
    "casts": (6.0, 0.3, "read 4, write 2"),
    "loss": (8.0, 0.25, "count of kernels"),
    "fused_loss": (0.4, 0.2, "default"),
    "launch_s": (6e-6, 0.15, "default: an asynchronous launch from Python"),
    "expert_kernels": (30.0, 0.4, "default: routing, permutation, their inverse; the experts' own are counted"),
    "expert_traffic": (1.5, 0.3, "default"),
    "selective": (0.4, 0.3, "default"),
    "tensor": (0.8, 0.3, "default"),
    "context": (0.5, 0.4, "default"),
    "expert": (0.7, 0.4, "default"),
    "sharded": (0.19, 0.2, "kernels beside it are 18.9 % slower on average, 40 % at most (arXiv 2507.03114)"),
    "gradients": (1.0, 0.2, "the links'"),
    "overlap": (0.5, 0.3, "default"),
    "bus.peer": (1.5, 0.3, "default"),
    "bus.staged": (1.5, 0.3, "default"),
    "bus_sharing.peer": (0.3, 0.4, "default"),
    "bus_sharing.staged": (0.3, 0.4, "default"),
    "update": (1.5, 0.3, "default"),
    "bubble": (1.0, 0.2, "the schedule's"),
    "bandwidth": (0.85, 0.001, "STREAM on GPUs"),
    "adapted": (1.0, 0.3, "counted, move by move"),
    "dequantised": (
        2.0,
        0.5,
        "LitGPT's LoRA of Llama 2 13B takes 192 ms a step more with nf4 weights; 48 by bytes",
    ),
}
WIDTHS = {
    "stack.compute": 0.07,
    "stack.attention": 0.15,
    "stack.traffic": 0.2,
    "stack.launch": 0.5,
    "stack.tensor": 0.8,
    "stack.sharded": 0.5,
    "stack.tuned": 0.08,
}
"""Widths around 1 of what only says how a device, a method or a stack differs."""
