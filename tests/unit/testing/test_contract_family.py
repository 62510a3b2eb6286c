"""Our families and a plug-in keep the contract of families."""

from __future__ import annotations

from trainwright.testing.contract_family import FamilyContract


class TestLlama(FamilyContract):
    family = "llama"


class TestGPT2(FamilyContract):
    family = "gpt2"


class TestBERT(FamilyContract):
    family = "bert"


class TestRoBERTa(FamilyContract):
    family = "roberta"


class TestPlugIn(FamilyContract):
    family = "fixtures.plugged_family:FAMILY"
