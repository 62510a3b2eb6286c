"""Speed of generation and serving on this machine.

Prints tokens per second of the engine alone and over HTTP for 1, 4 and 8 concurrent requests, the time to the first
token, and beside them ``transformers.generate`` with the same weights. Weights are random: the speed of the network
does not depend on their values. Run it on an idle machine::

    python benchmarks/serve.py [--threads N] [--dtype fp32|bf16] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path

import httpx
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from trainwright.core.records import to_json
from trainwright.model import hf
from trainwright.model.build import build_network
from trainwright.model.bundle import load_bundle
from trainwright.model.generation.engine import TorchEngine
from trainwright.model.generation.text_stream import TokenBytes
from trainwright.model.generation.texts import TextGenerator
from trainwright.runtime.device import DTYPES
from trainwright.spec.generation import Sampling
from trainwright.spec.sections.model import ModelSection
from trainwright.stages.serve.server import Server, listen
from trainwright.stages.serve.service import load_service

SHAPES = {
    "2M": ({"layers": 6, "width": 160, "heads": 4, "context_tokens": 512}, 4096),
    "8M": ({"layers": 8, "width": 256, "heads": 4, "context_tokens": 512, "tied": True}, 8192),
}
PROMPT_TOKENS, ANSWER_TOKENS = 64, 128
CONCURRENT = (1, 4, 8)


def make_bundle(directory: Path, shape: str) -> Path:
    """A model of that shape with random weights, and a tokenizer in which every token is some text."""
    section, vocabulary = SHAPES[shape]
    model = build_network(ModelSection.model_validate(section).spec(vocabulary=vocabulary))
    model.initialise(0)
    with torch.no_grad():
        model.head_weight.mul_(20)  # as peaked as a trained model: a flat distribution would make top-p sort everything
    directory.mkdir()
    (directory / "model.json").write_text(json.dumps(to_json(model.spec)))
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    save_file(weights, directory / "model.safetensors")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = alphabet + [a + b for a in alphabet for b in alphabet][: vocabulary - len(alphabet)]
    tokenizer = Tokenizer(models.BPE({piece: n for n, piece in enumerate(pieces)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(directory / "tokenizer.json"))
    return directory


def engine_speed(bundle: Path, *, concurrent: int, dtype: torch.dtype, temperature: float) -> float:
    """Tokens per second of all requests together, prompts included in the time."""
    model, tokenizer = load_bundle(bundle, dtype=dtype)
    engine = TorchEngine(model, places=concurrent)
    generator = TextGenerator(engine, TokenBytes(tokenizer), end_ids=frozenset())
    speeds = []
    for _ in range(4):
        for n in range(concurrent):
            prompt = [n + 1] * PROMPT_TOKENS
            generator.add(prompt, Sampling(max_tokens=ANSWER_TOKENS, temperature=temperature, top_p=0.95, seed=n))
        started, tokens = time.perf_counter(), 0
        while generator.unfinished:
            tokens += len(generator.step())
        speeds.append(tokens / (time.perf_counter() - started))
    return statistics.median(speeds[1:])


def transformers_speed(bundle: Path, *, concurrent: int) -> float:
    """The same work by ``transformers.generate``, fp32, greedy, a static batch."""
    import transformers

    model, _ = load_bundle(bundle)
    with tempfile.TemporaryDirectory() as folder:
        hf.write(Path(folder), model.spec, dict(model.named_parameters()), dtype=torch.float32, extra={})
        theirs = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    prompts = torch.arange(1, concurrent + 1)[:, None].expand(concurrent, PROMPT_TOKENS)
    speeds = []
    for _ in range(4):
        started = time.perf_counter()
        with torch.inference_mode():
            made = theirs.generate(
                prompts,
                attention_mask=torch.ones_like(prompts),
                max_new_tokens=ANSWER_TOKENS,
                min_new_tokens=ANSWER_TOKENS,
                do_sample=False,
                pad_token_id=0,
            )
        speeds.append((made.shape[1] - PROMPT_TOKENS) * concurrent / (time.perf_counter() - started))
    return statistics.median(speeds[1:])


async def http_speed(url: str, *, concurrent: int) -> tuple[float, float]:
    """Tokens per second over HTTP streams, and the median time to the first event in seconds."""

    async def ask(client: httpx.AsyncClient, n: int) -> float:
        body = {
            "model": "bench",
            "prompt": [n + 1] * PROMPT_TOKENS,
            "max_tokens": ANSWER_TOKENS,
            "temperature": 0,
            "stream": True,
        }
        started, first = time.perf_counter(), None
        async with client.stream("POST", f"{url}/v1/completions", json=body) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: {") and first is None:
                    first = time.perf_counter() - started
        assert first is not None
        return first

    async with httpx.AsyncClient(timeout=120) as client:
        speeds, firsts = [], []
        for _ in range(4):
            started = time.perf_counter()
            firsts += await asyncio.gather(*(ask(client, n) for n in range(concurrent)))
            speeds.append(concurrent * ANSWER_TOKENS / (time.perf_counter() - started))
    return statistics.median(speeds[1:]), statistics.median(firsts[concurrent:])


def measure(shape: str, dtype: str) -> list[dict[str, object]]:
    """A row for each number of concurrent requests."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        bundle = make_bundle(Path(folder) / "bundle", shape)
        service = load_service(bundle, model_name="bench", max_concurrent=max(CONCURRENT), max_waiting=8)
        with Server(service, listen("127.0.0.1", 0)) as server:
            for concurrent in CONCURRENT:
                over_http, first = asyncio.run(http_speed(server.url, concurrent=concurrent))
                speed = partial(engine_speed, bundle, concurrent=concurrent, dtype=DTYPES[dtype])
                rows.append(
                    {
                        "shape": shape,
                        "concurrent": concurrent,
                        "engine_greedy": speed(temperature=0.0),
                        "engine_sampled": speed(temperature=0.8),
                        "http": over_http,
                        "time_to_first_token_ms": first * 1e3,
                        "transformers": transformers_speed(bundle, concurrent=concurrent),
                    }
                )
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="threads of torch")
    parser.add_argument("--dtype", choices=sorted(DTYPES), default="fp32", help="of the engine alone")
    parser.add_argument("--shapes", nargs="+", choices=sorted(SHAPES), default=sorted(SHAPES))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    rows = [row for shape in args.shapes for row in measure(shape, args.dtype)]
    if args.json:
        print(json.dumps({"threads": args.threads, "dtype": args.dtype, "rows": rows}, indent=1))
        return
    print(f"{args.threads} threads, {PROMPT_TOKENS} tokens in, {ANSWER_TOKENS} out; tokens/s of all requests together")
    print(" | ".join(rows[0]))
    for row in rows:
        print(" | ".join(f"{value:.0f}" if isinstance(value, float) else str(value) for value in row.values()))


if __name__ == "__main__":
    main()
