"""Days of price lists against a real history, made here."""

import os
import subprocess
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from trainwright.core.errors import MachineError
from trainwright.hardware.prices.snapshot import packaged

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "price_dates.py"


@pytest.fixture(scope="module")
def dates():
    spec = spec_from_file_location(SCRIPT.stem, SCRIPT)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """A repository of three commits, of which the second left the list alone; and their names."""
    clone = tmp_path_factory.mktemp("clone")

    def git(*words, day="2026-01-01"):
        at = {"GIT_AUTHOR_DATE": f"{day}T12:00:00Z", "GIT_COMMITTER_DATE": f"{day}T12:00:00Z"}
        who = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
        environment = {**os.environ, **at, "GIT_CONFIG_GLOBAL": os.devnull}
        return subprocess.run(
            ["git", "-C", str(clone), *who, *words], env=environment, check=True, capture_output=True, text=True
        ).stdout.strip()

    git("init", "-q")
    names = []
    for day, file in (("2026-03-01", "vms.csv"), ("2026-04-01", "other.csv"), ("2026-05-01", "vms.csv")):
        (clone / file).write_text(day)
        git("add", "-A")
        git("commit", "-qm", day, day=day)
        names.append(git("rev-parse", "--short=7", "HEAD"))
    return clone, names


def test_a_list_is_as_old_as_its_last_change_up_to_the_commit(dates, history):
    clone, (first, second, third) = history
    assert dates.last_changed(clone, "vms.csv", first) == dates.last_changed(clone, "vms.csv", second) == "2026-03-01"
    assert dates.last_changed(clone, "vms.csv", third) == "2026-05-01"
    assert dates.last_changed(clone, "never.csv", third) == ""


def test_rows_without_a_day_get_theirs_and_no_others_change(dates, history):
    clone, (_, second, third) = history
    rows = [
        {"source": f"{dates.REPOSITORY}:vms.csv", "as_of": second, "date": ""},
        {"source": f"{dates.REPOSITORY}:vms.csv", "as_of": third, "date": "2024-12-31"},
        {"source": "someone/else:vms.csv", "as_of": third, "date": ""},
    ]
    assert [row["date"] for row in dates.dated(rows, clone)] == ["2026-03-01", "2024-12-31", ""]
    assert rows[0]["date"] == "", "what is given stays as it is"


def test_what_has_no_such_commit_says_so(dates, history, tmp_path):
    clone, _ = history
    with pytest.raises(MachineError, match="cannot read a history"):
        dates.last_changed(clone, "vms.csv", "0123456")
    with pytest.raises(MachineError, match="a clone of skypilot-org"):
        dates.last_changed(tmp_path, "vms.csv", "0123456")


def test_packaged_rows_name_a_file_and_a_commit_that_a_history_can_be_asked_for(dates):
    rows = [row for each in packaged() for row in each.rows if row["source"].startswith(dates.REPOSITORY)]
    assert len(rows) > 300
    assert all(row["source"].partition(":")[2].startswith("catalogs/v") for row in rows)
    assert all(len(row["as_of"].partition(" ")[0]) == 7 for row in rows)
