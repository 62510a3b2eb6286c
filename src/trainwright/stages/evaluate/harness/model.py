"""``HarnessModel``: a network, as lm-evaluation-harness asks a model.

How texts are cut that are too long, and what stands where there is no context, is what the harness's own model of
Hugging Face does, so that numbers can be compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import torch
from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.models.utils import normalize_gen_kwargs
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from tokenizers import Tokenizer
from torch import Tensor

from trainwright.core.errors import RecipeError
from trainwright.model.chats.template import Render, TemplateRefuses
from trainwright.model.conventions import Conventions
from trainwright.model.generation.generate import complete
from trainwright.model.network import Network
from trainwright.spec.generation import Sampling
from trainwright.stages.evaluate.harness.tasks import WHERE

Scored = tuple[Any, list[int], list[int]]
"""What the harness calls a request, the tokens of its context, and those that are scored."""
ROUNDS = 16
"""Answers for each place of a batch between two reports of how far it is."""
_GOES_ON = "\ue000"
"""Of private use: stands in a rendered chat where an answer that has begun goes on."""


class HarnessModel(TemplateLM):
    """What the harness asks of a model, answered by a network of ours.

    Args:
        network: writes text.
        tokenizer: the network's.
        conventions: how its texts begin and end.
        batch_sequences: sequences of a forward pass.
        render: turns messages into a prompt; None: no chat template.
        progress: told of requests that are done, and of all.
    """

    def __init__(
        self,
        network: Network,
        tokenizer: Tokenizer,
        conventions: Conventions,
        *,
        batch_sequences: int,
        render: Render | None = None,
        progress: Callable[[int, int], None],
    ) -> None:
        super().__init__()
        self._network, self._text, self._render = network, tokenizer, render
        self._ends = conventions.end_ids
        begun: list[int] = tokenizer.encode("").ids
        self._start = begun[0] if begun else conventions.start_id  # a bundle does not say which special token it is
        self._batch, self._progress = batch_sequences, progress
        self.context_tokens = network.spec.context_tokens

    @property
    def chats(self) -> bool:
        """Returns whether it is asked by a chat template."""
        return self._render is not None

    @property
    def eot_token_id(self) -> int:
        """Returns the token that ends a text."""
        return min(self._ends)

    @property
    def prefix_token_id(self) -> int:
        """Returns the token that stands where there is no context."""
        return self.eot_token_id if self._start is None else self._start

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """Returns the tokens of a text, with those that the tokenizer puts around one where they are not there yet."""
        if add_special_tokens is None:
            begun = self._text.id_to_token(self.prefix_token_id)
            add_special_tokens = not (begun and string.startswith(begun))
        ids: list[int] = self._text.encode(string, add_special_tokens=add_special_tokens).ids
        return ids

    def loglikelihood(self, requests: Sequence[Instance], disable_tqdm: bool = True) -> list[tuple[float, bool]]:
        """Returns of each context and continuation the log-likelihood, and whether it is the likeliest one."""
        answers: list[tuple[float, bool]] = super().loglikelihood(requests, disable_tqdm=disable_tqdm)
        return answers

    @torch.inference_mode()
    def _loglikelihood_tokens(self, requests: Sequence[Scored], **_: Any) -> list[tuple[float, bool]]:
        """Returns of each request the log-likelihood of its scored tokens, and whether each was the likeliest.

        A request longer than the context loses its first tokens. The longest are computed first, so that what does not
        fit in memory is known at once.
        """
        order = sorted(range(len(requests)), key=lambda number: -_size(requests[number]))
        answers: list[tuple[float, bool]] = [(0.0, True)] * len(requests)
        for begin in range(0, len(order), self._batch):
            numbers = order[begin : begin + self._batch]
            scores = self._scores([requests[number] for number in numbers])
            for number, answer in zip(numbers, scores, strict=True):
                answers[number] = answer
            self._progress(begin + len(numbers), len(order))
        return answers

    def _scores(self, requests: Sequence[Scored]) -> Iterator[tuple[float, bool]]:
        """Yields the answers of one batch; sequences are padded behind, where no earlier token looks."""
        before = [self.prefix_token_id]  # a context of spaces alone is no token: they begin what is scored
        whole = [((context or before) + scored)[-(self.context_tokens + 1) :] for _, context, scored in requests]
        tokens = torch.zeros(len(whole), max(map(len, whole)) - 1, dtype=torch.long)
        for row, each in enumerate(whole):
            tokens[row, : len(each) - 1] = torch.tensor(each[:-1])
        hidden = self._network(tokens.to(self._network.device))
        for row, (each, (_, _, scored)) in enumerate(zip(whole, requests, strict=True)):
            last = len(each) - 1
            yield self._score(hidden[row, max(0, last - len(scored)) : last], scored)

    def _score(self, hidden: Tensor, scored: Sequence[int]) -> tuple[float, bool]:
        """Returns the sum of log-likelihoods [nats] of tokens given the hidden states [seq, width] before them."""
        targets = torch.tensor(scored, device=hidden.device)[-hidden.shape[0] :]
        logits = self._network.logits(hidden)
        chosen = logits.log_softmax(dim=-1).gather(1, targets.unsqueeze(1))
        return float(chosen.sum()), bool((logits.argmax(dim=-1) == targets).all())

    def loglikelihood_rolling(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[float]:
        """Returns the log-likelihood of each whole text, each token once, in windows as long as the context."""
        del disable_tqdm
        windows: list[Scored] = []
        ends: list[int] = []
        for request in requests:
            tokens = self.tok_encode(request.args[0])
            rolling = get_rolling_token_windows(tokens, self.prefix_token_id, self.context_tokens, 1)
            windows.extend((None, *make_disjoint_window(pair)) for pair in rolling)
            ends.append(len(windows))
        scores = [score for score, _ in self._loglikelihood_tokens(windows)]
        return [sum(scores[begin:end]) for begin, end in zip([0, *ends], ends, strict=False)]

    def generate_until(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[str]:
        """Returns a text for each request, up to a text that stops it; a prompt that is too long loses its beginning.

        A prompt that is asked again (``repeats``) gets an answer of its own, where answers are drawn.

        Raises:
            RecipeError: a task wants an answer longer than the context.
        """
        del disable_tqdm
        texts = [""] * len(requests)
        asked: Counter[str] = Counter()
        kinds = []
        for request in requests:
            kinds.append((repr(request.args[1]), asked[repr(request.args)]))
            asked[repr(request.args)] += 1
        done = 0
        for kind, group in groupby(sorted(range(len(requests)), key=kinds.__getitem__), key=kinds.__getitem__):
            every = list(group)
            sampling = _sampling(requests[every[0]].args[1], choice=kind[1])
            for begin in range(0, len(every), self._batch * ROUNDS):
                numbers = every[begin : begin + self._batch * ROUNDS]
                for number, text in zip(numbers, self._answers(requests, numbers, sampling), strict=True):
                    texts[number] = text
                done += len(numbers)
                self._progress(done, len(requests))
        return texts

    def _answers(self, requests: Sequence[Instance], numbers: Sequence[int], sampling: Sampling) -> Iterator[str]:
        room = self.context_tokens - sampling.max_tokens
        if room < 1:
            raise RecipeError(
                "a benchmark's answer leaves no room for its question",
                where=WHERE,
                seen=f"answers of {sampling.max_tokens} tokens, a context of {self.context_tokens}",
                fix="take that task out, or evaluate a model of a longer context",
            )
        prompts = [self.tok_encode(requests[number].args[0])[-room:] or [self.prefix_token_id] for number in numbers]
        answers = complete(
            self._network, self._text, prompts, sampling, end_ids=frozenset(self._ends), places=self._batch
        )
        return (answer.text for answer in answers)

    @property
    def tokenizer_name(self) -> str:
        """Returns what the harness tells kept prompts of one template from another's by."""
        return "trainwright"

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """Returns whether there is a template, in the harness's form."""
        return self.tokenizer_name if chat_template else None

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """Returns messages as the model was tuned on them, without a system's where its template takes none.

        Without ``add_generation_prompt`` the last message is the beginning of an answer, and stays open.
        """
        try:
            return self._rendered(chat_history, add_generation_prompt)
        except TemplateRefuses:
            taken = [message for message in chat_history if message["role"] != "system"]
            return self._rendered(taken, add_generation_prompt)

    def _rendered(self, messages: list[dict[str, str]], to_answer: bool) -> str:
        assert self._render is not None
        if to_answer:
            return self._render(messages, True)
        begun = {**messages[-1], "content": messages[-1]["content"] + _GOES_ON}
        return self._render([*messages[:-1], begun], False).rpartition(_GOES_ON)[0]


def _size(request: Scored) -> int:
    return len(request[1]) + len(request[2])


def _sampling(asked: Mapping[str, Any], *, choice: int) -> Sampling:
    """Returns the settings of an answer as a task gives them; the likeliest token unless it says otherwise."""
    settings = normalize_gen_kwargs(dict(asked))
    return Sampling(
        max_tokens=settings["max_gen_toks"],
        temperature=float(settings.get("temperature", 1.0)) if settings["do_sample"] else 0.0,
        top_p=float(settings.get("top_p", 1.0)),
        choice=choice,
        stop=tuple(text for text in settings["until"] if text),
    )
