from __future__ import annotations

import json
import platform
import subprocess
import sys
from importlib.metadata import version

from trainwright import __version__
from trainwright.cli.main import main


def test_versions_are_those_installed(capsys):
    assert main(["version", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "trainwright.version/1"
    assert document["trainwright"] == __version__
    assert document["python"].endswith(platform.python_version())
    assert document["packages"]["pydantic"] == version("pydantic")


def test_a_missing_package_is_said_to_be_missing(capsys, monkeypatch):
    monkeypatch.setattr("trainwright.cli.shell.version.PACKAGES", ("surely-not-installed",))
    assert main(["version"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split() == ["surely-not-installed", "not", "installed"]


def test_torch_is_not_loaded():
    code = (
        "import sys; from trainwright.cli.main import main; main(['version', '-q']); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
