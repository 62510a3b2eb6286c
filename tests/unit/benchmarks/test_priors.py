"""What the fit starts from, held to what the catalogue says that it was fitted from."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from trainwright.hardware.catalogue.efficiency import read_efficiency

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "priors.py"


@pytest.fixture(scope="module")
def priors():
    spec = spec_from_file_location(SCRIPT.stem, SCRIPT)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_catalogue_was_fitted_from_the_shares_that_stand_here(priors):
    """Where they differ, ``benchmarks/fit_time.py --write`` is due: products were fitted from other ones."""
    assert read_efficiency().matmul == {name: share for name, (share, _) in priors.MATMUL.items()}


def test_products_start_at_the_measured_shares_of_their_generation(priors):
    for name, (share, source) in priors.MATMUL.items():
        assert 0 < share < 1 and priors.MAMF in source
        assert (priors.PRIORS[f"products.{name}"][0], priors.PRIORS[f"products.{name}"][2]) == (share, source)
