from __future__ import annotations

import json

from trainwright.artifact.shard_writer import SplitEntry
from trainwright.stages.data.funnel import Funnel
from trainwright.stages.data.report import build_report, publish_report
from trainwright.stages.data.tokens.tokenizer import TokenizerFacts, TrainedTokenizer


def test_the_report_says_what_was_kept_dropped_and_made_of_it(tmp_path, section):
    given = section({"kind": "python-stdlib"}, {"kind": "jsonl", "paths": ["a", "b"]}, tokenizer={"vocabulary": 500})
    one, two = Funnel(), Funnel()
    one.read.add(30, 3)
    one.lose(one.broken, "not UTF-8", 10, "x.py")
    one.kept.add(20, 2)
    two.read.add(4)
    two.kept.add(4)
    entries = {"train": SplitEntry(documents=3, text_bytes=24, tokens=12, shards=())}
    report = build_report(
        given,
        [one, two],
        entries,
        TokenizerFacts(vocabulary=400, end_of_text_id=256),
        TrainedTokenizer(vocabulary=400, trainer="tokenizers", reason="small"),
        lossy=0,
    )
    assert [source["source"] for source in report["sources"]] == ["python-stdlib", "jsonl: a, b"]
    assert report["sources"][0]["broken"] == {"not UTF-8": {"documents": 1, "bytes": 10}}
    assert report["total"]["kept"] == {"documents": 3, "bytes": 24}
    assert report["splits"]["train"]["bytes_per_token"] == 2.0
    assert report["tokenizer"]["vocabulary"] == 400 < report["tokenizer"]["asked_vocabulary"] == 500
    publish_report(tmp_path, report)
    assert json.loads((tmp_path / "report.json").read_text()) == report
