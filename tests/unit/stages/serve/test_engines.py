from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import openai
import pytest
from pydantic import ValidationError

from fixtures.parrot_engine import Parrot
from trainwright.core.errors import MachineError, RecipeError
from trainwright.spec.sections.serve import EngineSection, ServeSection
from trainwright.stages.serve.engines import open_engine
from trainwright.testing.contract_engine import EngineContract

PARROT = "fixtures.parrot_engine:open_engine"

WITHOUT_TORCH = f"""
import json, sys, urllib.request
from pathlib import Path
from trainwright.spec.sections.serve import EngineSection
from trainwright.stages.serve.server import Server, listen
from trainwright.stages.serve.service import load_service

engine = EngineSection(name={PARROT!r})
service = load_service(Path(sys.argv[1]), model_name="p", max_concurrent=2, max_waiting=2, engine=engine)
with Server(service, listen("127.0.0.1", 0)) as server:
    body = json.dumps({{"model": "p", "prompt": "add", "max_tokens": 6, "temperature": 0}}).encode()
    request = urllib.request.Request(
        f"{{server.url}}/v1/completions", data=body, headers={{"Content-Type": "application/json"}}
    )
    print(json.load(urllib.request.urlopen(request))["usage"]["completion_tokens"])
print([name for name in sys.modules if name.partition(".")[0] == "torch"])
"""


class TestParrot(EngineContract):
    def make_engine(self, places):
        return Parrot(places)


def no_engine(directory, *, places):
    """A plug-in that forgets to return its engine."""


def test_a_plug_in_that_makes_no_engine_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "newcomer", sys.modules[__name__])
    with pytest.raises(RecipeError, match=r"serve\.engine: the plug-in newcomer:no_engine failed .*of type NoneType"):
        open_engine(EngineSection(name="newcomer:no_engine"), tmp_path, places=1)


def crowded(directory, *, places):
    """An engine of which the machine cannot hold one."""
    raise MachineError("too many places", field="max_concurrent" if places > 1 else None, seen=places)


def test_too_many_places_are_said_under_the_key_of_the_recipe(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "newcomer", sys.modules[__name__])
    for places, line in ((2, "serve.max_concurrent: too many places (seen 2)"), (1, "too many places (seen 1)")):
        with pytest.raises(MachineError) as raised:
            open_engine(EngineSection(name="newcomer:crowded"), tmp_path, places=places)
        assert str(raised.value) == line


def test_a_recipe_says_at_once_that_an_engine_is_unknown():
    with pytest.raises(ValidationError, match=r"Input should be 'torch' or 'package\.module:name'"):
        ServeSection(engine="troch")
    assert ServeSection(engine=PARROT).engine.name == PARROT


def test_a_plug_in_engine_answers_openais_client(serve, tiny):
    server, service = serve(engine=EngineSection(name=PARROT))
    assert service.context_tokens == 64
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0) as client:
        made = client.completions.create(model="tiny", prompt="def add", max_tokens=50, temperature=0, stop="add")
        with pytest.raises(openai.BadRequestError, match="context is 64 tokens"):
            client.completions.create(model="tiny", prompt=[1] * 64)
    assert (made.choices[0].text, made.choices[0].finish_reason) == ("def ", "stop")
    assert 'engine="parrot 1"' in service.metrics.render()


def test_the_server_loads_no_torch_for_an_engine_without_it(bundle):
    paths = [str(Path(__file__).parents[3]), *sys.path]
    script = f"import sys; sys.path[:] = {paths!r}\n" + WITHOUT_TORCH
    done = subprocess.run(
        [sys.executable, "-c", script, str(bundle)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n", 1) == ["6", "[]\n"]
