from __future__ import annotations

from dataclasses import replace

from fixtures.page import WrittenPage
from trainwright.hardware.machine.record import Machine
from trainwright.render.results.machine import age_text, fact_rows, show
from trainwright.testing.machine import fake_facts, fake_probes


def test_rows_say_what_is_missing():
    rows = dict(fact_rows(fake_facts()))
    assert rows["torch"] == "2.13.0+cpu"
    assert rows["memory"] == "16 GiB of 16 GiB available"


def test_without_probes_only_facts_are_shown():
    page = WrittenPage()
    show(Machine(facts=fake_facts()), page, now_unix_s=0.0)
    assert list(page.tables) == ["machine"] and page.lines[-1] == "nothing to mend"


def test_every_probe_is_a_row():
    page, probes = WrittenPage(), fake_probes()
    show(Machine(facts=fake_facts(), probes=probes), page, now_unix_s=probes.measured_unix_s + 7200)
    assert len(page.tables["matrix product"]) == len(probes.matmul)
    assert len(page.tables["network"]) == len(probes.blocks)
    rows = dict(page.tables["measured on Ideal CPU"])
    assert rows["measured"] == "2 h 00 min ago, thoroughly"


def test_a_quick_measurement_names_the_longer_one():
    probes = replace(fake_probes(), thorough=False)
    assert age_text(probes, now_unix_s=probes.measured_unix_s) == "0 s ago, quickly (--thorough measures more)"
