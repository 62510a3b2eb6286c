"""Sources of chats and of preferences keep the contract of sources; lines and rows say the same."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trainwright.spec.sections.corpus.sources import ChatsSource, PreferencesSource
from trainwright.testing.contract_source import SourceContract

CHATS = ChatsSource(kind="chats", paths=("x",))
PREFERENCES = PreferencesSource(kind="preferences", paths=("x",))


class TestChats(SourceContract):
    def keys(self):
        return {"kind": "chats", "answer_key": "reply"}

    def write(self, folder):
        rows = [{"prompt": f"q{n}", "reply": "ü" * n} for n in range(1, 4)]
        (folder / "a.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
        return [f'[["user","q{n}"],["assistant","{"ü" * n}"]]' for n in range(1, 4)]


class TestPreferences(SourceContract):
    def keys(self):
        return {"kind": "preferences"}

    def write(self, folder):
        (folder / "a.jsonl").write_text(json.dumps({"prompt": "q", "chosen": "y", "rejected": "n"}) + "\n{}\n")
        chosen, rejected = (f'[["user","q"],["assistant","{answer}"]]' for answer in "yn")
        return [f'{{"chosen":{chosen},"rejected":{rejected}}}']


@pytest.mark.parametrize(
    ("section", "rows"),
    [
        (CHATS, [{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}, {}]),
        (CHATS, [{"prompt": "q", "completion": "a"}, {"prompt": "q", "completion": ""}]),
        (
            PREFERENCES,
            [{"prompt": "q", "chosen": "y", "rejected": "n"}, {"prompt": None, "chosen": "y", "rejected": "n"}],
        ),
    ],
)
def test_rows_are_what_lines_are(section, rows, tmp_path, read, written):
    columns = {key: [row.get(key) for row in rows] for key in rows[0]}
    pq.write_table(pa.table(columns | {"other": [1] * len(rows)}), tmp_path / "a.parquet")
    of_rows = read(tmp_path / "a.parquet", section)
    of_lines = read(written(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)).encode()), section)
    assert [(each.text, each.problem) for each in of_rows] == [(each.text, each.problem) for each in of_lines]
    assert [each.position for each in of_rows] == [", row 0", ", row 1"]
    assert of_rows[0].text is not None
    assert of_rows[1].problem is not None
