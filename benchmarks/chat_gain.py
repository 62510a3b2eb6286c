"""What tuning on chats gains: the loss on the answers of held-out chats before and after, and whether that is chance.

    trainwright run recipes/quickstart.yaml
    trainwright run recipes/llama-chat-lora.yaml --workspace runs/quickstart
    python benchmarks/chat_gain.py BASE TUNED DATASET [--split test] [--chats 100] [--out FILE.json]

BASE and TUNED are folders of models (a trained artefact, an export's ``huggingface``), DATASET is the chats' artefact.
Both models read the same chats, those that come first in the split, whose order is that of a hash; each chat's loss is
the mean over the tokens of its answers. The two-sided p is that of Student's test for pairs
(``scipy.stats.ttest_rel``), with Wilcoxon's beside it, which supposes no distribution.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import torch
from numpy.typing import NDArray
from scipy import stats

from trainwright import __version__
from trainwright.artifact.shards import TokenDataset, TokenSplit
from trainwright.model.bundle import load_bundle
from trainwright.model.tasks.chat import Chat, ChatCosts
from trainwright.model.tasks.task import EvaluationOptions

CHATS, BATCH = 100, 8
LEAST_GAIN, MOST_P = 0.2, 0.01
"""The recipe's bar: the loss falls by at least this share, and by chance with at most this probability."""


@dataclass(frozen=True, kw_only=True)
class Gain:
    """Nats per token of answers over all tokens, before and after, and both tests of the chats' own losses."""

    chats: int
    tokens: int
    base: float
    tuned: float
    better: int
    t_test_p: float
    wilcoxon_p: float

    @property
    def share(self) -> float:
        """By which share of the base's the loss is lower."""
        return 1 - self.tuned / self.base


def gain(base: ChatCosts, tuned: ChatCosts, *, chats: int) -> Gain:
    """Compares what the answers of the first ``chats`` cost.

    Raises:
        ValueError: there are fewer, or the two are of other chats.
    """
    if not (np.array_equal(base.chats, tuned.chats) and np.array_equal(base.tokens, tuned.tokens)):
        raise ValueError("the two models read other chats: their tokenizers or contexts differ")
    if len(base.chats) < chats:
        raise ValueError(f"{chats} chats are wanted, and a sequence holds {len(base.chats)} of this split")
    tokens = base.tokens[:chats]
    before, after = (_means(costs, chats) for costs in (base, tuned))
    return Gain(
        chats=chats,
        tokens=int(tokens.sum()),
        base=float(base.nats[:chats].sum() / tokens.sum()),
        tuned=float(tuned.nats[:chats].sum() / tokens.sum()),
        better=int((after < before).sum()),
        t_test_p=float(stats.ttest_rel(before, after).pvalue),
        wilcoxon_p=float(stats.wilcoxon(before, after).pvalue),
    )


def _means(costs: ChatCosts, chats: int) -> NDArray[np.float64]:
    means: NDArray[np.float64] = costs.nats[:chats] / costs.tokens[:chats]
    return means


def measured(folder: Path, split: TokenSplit) -> ChatCosts:
    """What the answers of a split's chats cost the model in a folder."""
    network, _ = load_bundle(folder)
    task = Chat(sequence_tokens=network.spec.context_tokens)
    return task.costs(network.eval(), split, EvaluationOptions(batch_sequences=BATCH))


def record(found: Gain, *, split: str) -> Mapping[str, Any]:
    """The measurement as it is kept, with its date and versions."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "command": "python benchmarks/chat_gain.py",
        "python": platform.python_version(),
        "versions": {
            "trainwright": __version__,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "scipy": scipy.__version__,
        },
        "split": split,
        "chats": found.chats,
        "answer_tokens": found.tokens,
        "base_nats_per_token": found.base,
        "tuned_nats_per_token": found.tuned,
        "lower_by": found.share,
        "chats_with_lower_loss": found.better,
        "p_paired_t_test": found.t_test_p,
        "p_wilcoxon": found.wilcoxon_p,
    }


def main() -> int:
    """Measures, prints, and returns 1 where the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", type=Path)
    parser.add_argument("tuned", type=Path)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--split", default="test")
    parser.add_argument("--chats", type=int, default=CHATS)
    parser.add_argument("--out", type=Path, help="a JSON file for the result")
    args = parser.parse_args()
    split = TokenDataset.open(args.dataset).splits[args.split]
    found = gain(measured(args.base, split), measured(args.tuned, split), chats=args.chats)
    print(f"{found.chats} chats of the {args.split} split, {found.tokens:,} tokens of answers")
    print(f"base   {found.base:.4f} nats/token")
    print(f"tuned  {found.tuned:.4f} nats/token, {found.share:.1%} lower; lower in {found.better} chats")
    print(f"p      {found.t_test_p:.2g} (paired t), {found.wilcoxon_p:.2g} (Wilcoxon)")
    if args.out is not None:
        args.out.write_text(json.dumps(record(found, split=args.split), indent=1) + "\n", encoding="utf-8")
    return 0 if found.share >= LEAST_GAIN and found.t_test_p < MOST_P else 1


if __name__ == "__main__":
    raise SystemExit(main())
