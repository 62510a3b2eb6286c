"""Price lists from files, folders and a server on this machine."""

from __future__ import annotations

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from trainwright.core.errors import RecipeError
from trainwright.hardware.prices import snapshot
from trainwright.hardware.prices.clouds import cloud
from trainwright.hardware.prices.feed import update
from trainwright.hardware.prices.price_list import price_list

HEADER = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region,GpuInfo,SpotPrice\n"
AWS = HEADER + "p5.48xlarge,H100,8,192,2048,16.0,us-east-1,,4.0\np5.48xlarge,H100,8,192,2048,700.0,mars,,\n"
LAMBDA = HEADER + "gpu_8x_h100_sxm5,H100,8,208,1800,23.92,us-east-1,,\n"


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def lists(tmp_path):
    """A folder in the layout of SkyPilot's catalogue."""
    for name, text in (("aws", AWS), ("lambda", LAMBDA)):
        (tmp_path / "lists" / name).mkdir(parents=True)
        (tmp_path / "lists" / name / "vms.csv").write_text(text)
    return tmp_path / "lists"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_args):
        pass


@pytest.fixture
def address(lists):
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(lists)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_fetched_list_takes_the_place_of_its_clouds_packaged_rows_of_its_devices(lists):
    before = price_list()
    assert before.cheapest("h100-sxm", providers=["aws"]).usd_per_device_hour == 6.88
    (found,) = update([str(lists / "aws" / "vms.csv")], [], today="2026-12-01")
    assert (found.cloud, found.offers, found.devices, found.refused) == ("AWS", 2, 1, {"placeholder": 1})
    after = price_list()
    assert after.cheapest("h100-sxm", providers=["aws"]).usd_per_device_hour == 2.0
    assert after.cheapest("h100-sxm", providers=["aws"]).as_of == "2026-12-01"
    assert after.offers("h200-sxm", providers=["aws"]) == before.offers("h200-sxm", providers=["aws"])
    assert after.offers("h100-sxm", providers=["nebius"]) == before.offers("h100-sxm", providers=["nebius"])


def test_a_folder_holds_several_clouds(lists):
    assert [each.cloud for each in update([str(lists)], [], today="2026-12-01")] == ["AWS", "Lambda"]
    assert [each.cloud for each in update([str(lists)], [cloud("lambda")], today="2026-12-01")] == ["Lambda"]


def test_an_address_of_a_file_and_of_a_whole_catalogue(address):
    (found,) = update([f"{address}/lambda/vms.csv"], [], today="2026-12-01")
    assert (found.cloud, found.error) == ("Lambda", None)
    results = {each.cloud: each for each in update([address], [cloud("aws"), cloud("gcp")], today="2026-12-01")}
    assert results["AWS"].error is None
    assert "HTTP 404" in str(results["GCP"].error)
    assert [path.stem for path in snapshot.fetched_files()] == ["aws", "lambda"]


def test_no_answer_is_one_line_and_leaves_the_old_list(lists, address):
    update([str(lists)], [], today="2026-12-01")
    kept = snapshot.fetched()
    dead = "http://127.0.0.1:1/aws/vms.csv"
    (found,) = update([dead], [], today="2026-12-02")
    assert found.error.exit_code == 3
    assert str(found.error).startswith(f"{dead}: cannot fetch a price list")
    assert snapshot.fetched() == kept


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (HEADER, "no believable price in it (seen no row with an accelerator)"),
        (HEADER + "i,H100,1,1,1,0,r,,\n", "no believable price in it (seen 1 x placeholder)"),
        ("<html>sign in</html>", "not a price file in SkyPilot's format"),
    ],
)
def test_a_list_without_prices_replaces_nothing(tmp_path, text, problem):
    path = tmp_path / "aws.csv"
    path.write_text(text)
    (found,) = update([str(path)], [], today="2026-12-01")
    assert problem in str(found.error)
    assert snapshot.fetched_files() == ()


def test_what_is_no_text_is_refused(tmp_path):
    (tmp_path / "aws.csv").write_bytes(b"\xff\xfe\x00H100")
    (found,) = update([str(tmp_path / "aws.csv")], [], today="2026-12-01")
    assert "not UTF-8" in str(found.error)


def test_a_file_must_say_whose_it_is(tmp_path, lists):
    (tmp_path / "prices.csv").write_text(AWS)
    with pytest.raises(RecipeError, match="whose prices are these.*`clouds` aws"):
        update([str(tmp_path / "prices.csv")], [], today="2026-12-01")
    (found,) = update([str(tmp_path / "prices.csv")], [cloud("aws")], today="2026-12-01")
    assert found.error is None
    with pytest.raises(RecipeError, match="no such price list"):
        update([str(tmp_path / "nowhere")], [], today="2026-12-01")


def test_a_list_that_was_cut_off_replaces_nothing(lists, address, monkeypatch):
    monkeypatch.setattr(Quiet, "copyfile", lambda self, source, out: out.write(source.read()[:-40]))
    (found,) = update([f"{address}/aws/vms.csv"], [], today="2026-12-01")
    whole = len(AWS.encode())
    assert f"a price list that was cut off (seen {whole - 40} of {whole} bytes)" in str(found.error)
    assert found.error.exit_code == 3 and snapshot.fetched_files() == ()


def test_a_host_that_does_not_answer_is_asked_once(monkeypatch):
    asked = []

    def refuse(request, timeout):
        asked.append(request.full_url)
        raise OSError("no route")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    results = update(["https://lists.example"], [], today="2026-12-01")
    assert len(asked) == 1
    assert len(results) > 5
    assert {each.error.exit_code for each in results} == {3}
