from trainwright.testing.machine import BYTES_PER_S, FLOPS_PER_S, fake_facts, fake_machine, fake_model, fake_probes


def test_the_fake_is_a_complete_record_of_a_consistent_machine():
    machine = fake_machine()
    assert machine.probes == fake_probes()
    assert machine.facts == fake_facts()
    assert {probe.dtype for probe in machine.probes.blocks} == set(FLOPS_PER_S)
    assert machine.probes.bandwidth[-1].bytes_per_s == BYTES_PER_S


def test_its_networks_can_be_built():
    assert fake_model().problems() == ()
    assert fake_model(family="gpt2").problems() == ()
