"""The catalogue and `twin fetch` from a mirror; nothing here needs the network."""

import hashlib
import io
import subprocess
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from ingest.core.errors import InputError, NotFoundError
from ingest.parsing import dataset
from ingest.pipeline.ingest import ingest
from ingest.public import catalogue, fetch
from ingest.public.catalogue import Address, Item, Member, PublicDataset
from ingest.readers import registry

CONTENT = {"a.csv": b"one\n", "below/b.csv": b"two\n"}


def item(name: str, data: bytes, origin: Address | Member | None = None) -> Item:
    return Item(name, len(data), hashlib.sha256(data).hexdigest(), origin)


def entry(*items: Item) -> PublicDataset:
    return PublicDataset("set", "wan", "a title", "MIT", "who", ("columns",), items)


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes the catalogue hold one set."""

    def hold(*items: Item) -> None:
        monkeypatch.setattr(fetch, "find", lambda name: entry(*items))

    return hold


def mirror(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        path = folder / "wan/set" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


COPIED_BY_HAND = {"surf-power", "carbon-intensity", "electricity-price"}
"""Sets whose data have terms of their own: a user gets them from their makers and reads them in."""


def test_every_set_that_is_known_can_be_fetched() -> None:
    found = catalogue.entries()
    known = tomllib.loads((Path(dataset.__file__).parent / "known.toml").read_text())
    assert set(found) == set(known) - COPIED_BY_HAND
    for one in found.values():
        assert one.items and one.licence and one.citation and one.title, one.name
        assert all(len(i.sha256) == 64 for i in one.items)
        assert all(registry.by_name(name) for name in one.readers)
        assert len({i.name for i in one.items}) == len(one.items)


def test_addresses_are_pinned_to_a_commit() -> None:
    def origin(name: str, file: str) -> str:
        return str(next(i.origin for i in catalogue.find(name).items if i.name == file))

    assert origin("skyplane-grids", "throughput.csv") == (
        "skyplane/data/throughput.csv in the wheel of skyplane==0.3.0"
    )
    assert origin("jobs-philly", "philly_node_sequence.csv").endswith(
        "/S-Lab-System-Group/HeliosArtifact/bdaae109c21f/framework/CES%20Service/data/philly_node_sequence.csv"
    )
    assert origin("ibm-interregion-latency", "network-latency.2024-01-30.6f3afc7a.md").endswith(
        "/ibm-cloud-docs/vpc/6f3afc7a/_include-segments/network-latency.md"
    )
    assert origin("profiles-vidur", "compute/h100_llama2-7b_mlp.csv").endswith(
        "/data/profiling/compute/h100/meta-llama/Llama-2-7b-hf/mlp.csv"
    )
    assert origin("cloudpilot-iperf3", "baseline-mesh-2021-08.tar.gz") == "None"


def test_an_unknown_set_is_named_with_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="wanify-aws8"):
        fetch.fetch(tmp_path, "wanify-aws")


@pytest.mark.shared
def test_the_catalogue_is_that_of_the_files(shared: Path) -> None:
    for one in catalogue.entries().values():
        root = shared / "traces" / one.folder / one.name
        sizes = {p.relative_to(root).as_posix(): p.stat().st_size for p in root.rglob("*") if p.is_file()}
        assert {i.name: i.size_bytes for i in one.items} == sizes


@pytest.mark.shared
def test_fetch_from_a_mirror_then_ingest(shared: Path, tmp_path: Path) -> None:
    for name in ("skyplane-grids", "azure-interregion-rtt"):
        done = fetch.fetch(tmp_path, name, mirror=shared / "traces")
        assert (done.new, done.present, done.left_out) == (len(catalogue.find(name).items), 0, ())
        assert fetch.fetch(tmp_path, name, mirror=shared / "traces").present == done.new
        (own, *_) = ingest([done.folder], tmp_path).files
        assert own.dataset == name and own.stored  # the folder's name tells what is known of the set
    with pytest.raises(InputError, match="give the folder that holds the sets"):
        fetch.fetch(tmp_path, "wanify-aws8", mirror=tmp_path)


def test_a_fetch_goes_on_with_what_is_missing(tmp_path: Path, only: Any) -> None:
    only(*(item(name, data) for name, data in CONTENT.items()))
    place = mirror(tmp_path / "mirror", {"a.csv": CONTENT["a.csv"]})
    with pytest.raises(InputError, match=r"b\.csv: cannot be read"):
        fetch.fetch(tmp_path, "set", mirror=place)
    mirror(place, CONTENT)
    done = fetch.fetch(tmp_path, "set", mirror=place)
    assert (done.new, done.present) == (1, 1)
    (done.folder / "a.csv").write_bytes(b"1ne\n")  # damaged since, same size
    assert fetch.fetch(tmp_path, "set", mirror=place).new == 1
    assert {name: (done.folder / name).read_bytes() for name in CONTENT} == CONTENT


def test_other_bytes_than_the_catalogue_has_are_not_kept(tmp_path: Path, only: Any) -> None:
    only(item("a.csv", b"one\n"))
    with pytest.raises(InputError, match="nothing was kept"):
        fetch.fetch(tmp_path, "set", mirror=mirror(tmp_path / "mirror", {"a.csv": b"oops"}))
    assert not list((tmp_path / "fetched").rglob("*.csv")) if (tmp_path / "fetched").exists() else True


def test_without_a_network_the_way_out_is_named(tmp_path: Path, only: Any) -> None:
    only(item("a.csv", b"one\n", Address("http://127.0.0.1:9/a.csv")))  # nothing listens on port 9
    with pytest.raises(InputError, match=r"a\.csv: could not be had from http.*--mirror DIR"):
        fetch.fetch(tmp_path, "set")


def test_files_without_an_address_are_named(tmp_path: Path, only: Any) -> None:
    only(item("a.csv", b"one\n"))
    assert fetch.fetch(tmp_path, "set").left_out == ("a.csv",)


def wheel(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


@pytest.mark.parametrize(
    ("code", "brought", "said"),
    [
        (0, {"p/data.csv": b"one\n"}, None),
        (0, {"p/other.csv": b"one\n"}, "not to be found there"),
        (1, None, "no matching distribution; check the network and pip"),
    ],
)
def test_a_member_of_a_wheel(
    tmp_path: Path,
    only: Any,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    brought: dict[str, bytes] | None,
    said: str | None,
) -> None:
    calls = []

    def pip(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        calls.append(command)
        if brought is not None:
            into = Path(command[command.index("--dest") + 1])
            into.mkdir()
            (into / "p-1-py3-none-any.whl").write_bytes(wheel(brought))
        return subprocess.CompletedProcess(command, code, "", "ERROR: no matching distribution")

    monkeypatch.setattr(subprocess, "run", pip)
    only(*(item(name, b"one\n", Member("p==1", "p/data.csv")) for name in ("a.csv", "b.csv")))
    if said is not None:
        with pytest.raises(InputError, match=said):
            fetch.fetch(tmp_path, "set")
        return
    assert fetch.fetch(tmp_path, "set").new == 2
    (command,) = calls  # one download for both members, and no installation
    assert command[2:4] == ["pip", "download"] and "--no-deps" in command
