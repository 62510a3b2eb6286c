"""Cleaning of chats: each message is normalised by itself, and the rules judge all that is said."""

from __future__ import annotations

from trainwright.spec.sections.data import DataSection
from trainwright.stages.data.chats.records import chats_of, form_of
from trainwright.stages.data.cleaning.cleaner import Cleaner
from trainwright.stages.data.pairs.cleaning import PairsCleaner
from trainwright.stages.data.words.cleaning import WordsCleaner


class ChatCleaner(Cleaner):
    """Normalises the messages of a chat's form; lengths, control characters and filters see them joined."""

    def __call__(self, text: str) -> tuple[str, str | None]:
        """Returns the cleaned form and None, or the form so far and the reason to drop it."""
        chats = [
            [message | {"content": self.normalised(message["content"])} for message in chat] for chat in chats_of(text)
        ]
        form = form_of(chats)
        if any(not message["content"].strip() for chat in chats for message in chat if message["role"] != "system"):
            return form, "an empty message"
        said = ("\n\n".join(message["content"] for message in chat) for chat in chats)
        reasons = (self.reason_to_drop(each) for each in said)
        return form, next((reason for reason in reasons if reason is not None), None)


def cleaner_of(section: DataSection) -> Cleaner:
    """Returns what cleans the records of a section.

    Raises:
        RecipeError: a filter cannot be found.
    """
    kinds: dict[str, type[Cleaner]] = {
        "chats": ChatCleaner,
        "preferences": ChatCleaner,
        "words": WordsCleaner,
        "pairs": PairsCleaner,
    }
    return kinds.get(section.records, Cleaner)(section.clean)
