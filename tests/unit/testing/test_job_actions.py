"""The program that contracts of launchers run."""

import subprocess
import sys

import pytest

from trainwright.testing.job_actions import act


def test_it_says_shows_and_ends_as_it_is_told():
    program = [sys.executable, "-m", "trainwright.testing.job_actions"]
    actions = ["say=a = b", "spawn=say=child", "exit=7", "say=late"]
    ended = subprocess.run([*program, *actions], capture_output=True, check=False, text=True)
    assert (ended.returncode, ended.stdout) == (7, "a = b\nchild\n")


def test_an_unknown_action_is_named():
    with pytest.raises(ValueError, match="dance"):
        act("dance", "now")
