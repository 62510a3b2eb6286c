from __future__ import annotations

from trainwright.stages.data.corpus.entries import CorpusFile


def test_a_url_is_remote_and_a_path_is_not():
    def remote(location):
        return CorpusFile(source=0, name="a", location=location, size_bytes=1, version="").remote

    assert remote("s3://bucket/a")
    assert remote("zip://a::file.zip")
    assert not remote("/data/a:b")
