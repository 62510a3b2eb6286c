from __future__ import annotations

import io
import sys

from trainwright.render import watching as module
from trainwright.render.watching import ErrorStream, watching
from trainwright.spec.event import Event

DONE = Event(run="r", t_s=1.0, kind="stage", name="data", value=1.0, text="done in 2 s")


def test_a_program_gets_lines_on_standard_error(capsys):
    with watching(wanted=True) as listeners:
        for listener in listeners:
            listener(DONE)
    assert capsys.readouterr() == ("", "data: done in 2 s\n")


def test_who_wants_none_sees_none(capsys):
    with watching(wanted=False) as listeners:
        assert listeners == ()
    assert capsys.readouterr() == ("", "")


def test_a_notebook_gets_an_area(monkeypatch, capsys):
    drawn = []
    monkeypatch.setattr(module, "in_notebook", lambda: True)
    monkeypatch.setattr(module, "open_area", lambda: drawn.append)
    with watching(wanted=True) as (listener,):
        listener(DONE)
    assert "data: done in 2 s" in drawn[-1]
    assert capsys.readouterr() == ("", "")


def test_colours_are_for_terminals_that_want_them(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    screen = ErrorStream()
    assert screen.colored(Terminal()) and not screen.colored(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not screen.colored(Terminal())
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert screen.stderr is sys.stderr
