"""`configs/operations/slurm`: the plug-in in real Lua, against the real service and services that fail.

Lua runs it with a table `slurm` and a job as Slurm documents them: unknown fields are refused, texts and
numbers are told apart, unset numbers are `NO_VAL`. A real Slurm runs it in `tests/real/slurm_plugin.sh`.
"""

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from ingest.core import resources
from tests.support.serving import listening

FOLDER = resources.configs("operations") / "slurm"
LUA = [name for name in ("lua5.3", "lua5.1", "lua5.4") if shutil.which(name)]
pytestmark = pytest.mark.skipif(
    not LUA or not shutil.which("curl"), reason="needs lua5.3 (or 5.1, 5.4) and curl"
)
NO_VAL, NO_VAL16 = 0xFFFFFFFE, 0xFFFE
TEXTS = ("comment", "admin_comment", "features", "partition", "tres_per_node", "tres_per_job")
NUMBERS = {
    "user_id": 1000, "het_job_offset": NO_VAL, "min_nodes": NO_VAL, "max_nodes": NO_VAL, "num_tasks": NO_VAL,
    "ntasks_per_node": NO_VAL16, "cpus_per_task": NO_VAL16, "min_cpus": NO_VAL,
}  # fmt: skip
READ_ONLY = ("user_id", "het_job_offset")
SLURM = """
local function say(...) io.write(table.concat({...}, "\\t"), "\\n") end
slurm = { SUCCESS = 0, ERROR = -1, NO_VAL = 4294967294, NO_VAL16 = 65534 }
for _, level in ipairs({"info", "error", "user"}) do
  slurm["log_" .. level] = function(...) say(level, (string.format(...):gsub("%s", " "))) end
end
local texts, numbers, fixed = {TEXTS}, {NUMBERS}, {FIXED}
local function job_desc(held)
  return setmetatable({}, {
    __index = function(_, name)
      if held[name] ~= nil then return held[name] end
      return numbers[name]
    end,
    __newindex = function(_, name, value)
      if texts[name] then
        assert(type(value) == "string" or type(value) == "number", "string expected for " .. name)
      elseif numbers[name] and not fixed[name] then
        assert(type(value) == "number", "number expected for " .. name)
      else
        say("error", "_set_job_field: unrecognized field: " .. name)
      end
      held[name] = value
      say("set", name, value)
    end,
  })
end
local settings = {SETTINGS}
local real = dofile
dofile = function() local twin = real("{PLUGIN}"); the_twin = twin; return twin end
real("{START}")
for name, value in pairs(settings) do the_twin.settings[name] = value end
for n, held in ipairs({JOBS}) do
  say("job", n)
  say("returned", slurm_job_submit(job_desc(held), {}, held.user_id))
end
"""


def lua(value: Any) -> str:
    """The value as Lua writes it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"[{lua(key)}] = {lua(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "{" + ", ".join(map(lua, value)) + "}"
    return json.dumps(value)


def submitted(
    tmp_path: Path, jobs: list[dict[str, Any]], version: str = LUA[0] if LUA else "", **settings: Any
) -> list[dict[str, list[list[str]]]]:
    """What the plug-in did with each job: words by kind of line."""
    parts = {
        "TEXTS": lua(dict.fromkeys(TEXTS, True)), "NUMBERS": lua(NUMBERS), "SETTINGS": lua(settings),
        "FIXED": lua(dict.fromkeys(READ_ONLY, True)), "JOBS": lua(jobs),
        "PLUGIN": str(FOLDER / "twin_submit.lua"), "START": str(FOLDER / "job_submit.lua"),
    }  # fmt: skip
    script = SLURM
    for name, text in parts.items():
        script = script.replace("{" + name + "}", text)
    (tmp_path / "trial.lua").write_text(script)
    done = subprocess.run([version, tmp_path / "trial.lua"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, list[list[str]]]] = []
    for line in done.stdout.splitlines():
        kind, *words = line.split("\t")
        if kind == "job":
            found.append({})
        else:
            found[-1].setdefault(kind, []).append(words)
    assert all(one["returned"] == [["0"]] for one in found) and len(found) == len(jobs)
    return found


def fields(one: dict[str, list[list[str]]]) -> dict[str, str]:
    """What was set, by field."""
    return dict(one.get("set", []))


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service of the toy world: 3 domains, nobody trains in them yet."""
    with listening(tmp_path_factory.mktemp("slurm")) as found:
        yield found


@contextmanager
def faulty(said: bytes | None, wait_s: float = 0.0) -> Iterator[str]:
    """A server that answers every request with these bytes, one each `wait_s`; None: with silence."""
    with socket.create_server(("127.0.0.1", 0)) as ear:
        held = []

        def answer() -> None:
            try:
                while True:
                    one, _ = ear.accept()
                    held.append(one)
                    one.recv(65536)
                    for n in range(0, len(said or b""), 1 if wait_s else 1 << 20):
                        one.sendall((said or b"")[n : n + (1 if wait_s else 1 << 20)])
                        time.sleep(wait_s)
                    if said is not None:
                        one.close()
            except OSError:  # the plug-in hung up, or the test has ended
                return

        thread = Thread(target=answer, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{ear.getsockname()[1]}"
        ear.shutdown(socket.SHUT_RDWR)
        for one in held:
            one.close()
        thread.join(5)


MODEL = "gpt2-1.5b"


@pytest.mark.parametrize("version", LUA)
def test_a_job_with_a_marker_gets_the_answer_of_the_service(
    tmp_path: Path, address: str, version: str
) -> None:
    marked = {"user_id": 7, "comment": f"paper; twin:{MODEL},global_batch=8,tokens=1e6 night"}
    plain = {"user_id": 7, "comment": "nothing to ask"}
    one, other = submitted(tmp_path, [marked, plain], version, url=address)
    comment = fields(one)["admin_comment"]
    assert comment.startswith("twin: ") and "tokens/s" in comment and "GPUs in d" in comment
    assert one["user"][0] == [comment] and "error" not in one
    assert other == {"returned": [["0"]]}


def test_components_get_the_domains_of_the_plan_from_one_answer(tmp_path: Path, address: str) -> None:
    jobs = [{"user_id": 7, "het_job_offset": n} for n in range(3)]
    jobs[0]["comment"] = f"twin:{MODEL},global_batch=8"  # type: ignore[assignment]
    partitions = {"d0": "p0", "d1": "p1", "d2": "p2"}
    found = submitted(tmp_path, jobs, url=address, gpus_per_node=2, partitions=partitions)
    said = fields(found[0])["admin_comment"]
    placed = [part.split(" GPUs in ") for part in said.split("; ")[1].split(", ")[0].split(" + ")]
    assert len(placed) <= 3
    for one, (gpus, domain) in zip(found, placed, strict=False):
        got = fields(one)
        nodes, on_node = -(-int(gpus) // 2), min(int(gpus), 2)
        expected = {
            "features": domain, "partition": domain.replace("d", "p"), "min_nodes": str(nodes),
            "max_nodes": str(nodes), "num_tasks": gpus, "ntasks_per_node": str(on_node), "min_cpus": gpus,
            "tres_per_node": f"gres:gpu:{on_node}",
        }  # fmt: skip
        assert {k: v.removesuffix(".0") for k, v in got.items() if k != "admin_comment"} == expected
    for n, one in enumerate(found[len(placed) :], len(placed)):
        assert list(fields(one)) == ["admin_comment"]
        assert fields(one)["admin_comment"].endswith(f"the plan has no component {n}")


def test_what_a_job_says_itself_stays(tmp_path: Path, address: str) -> None:
    own = {"features": "a&b", "partition": "mine", "min_nodes": 3, "admin_comment": "by hand"}
    job = {"user_id": 7, "het_job_offset": 0, "comment": f"twin:{MODEL},global_batch=8", **own}
    (one,) = submitted(tmp_path, [job], url=address, gpus_per_node=2, partitions={"d0": "x", "d1": "x"})
    assert list(fields(one)) == ["admin_comment"]
    assert fields(one)["admin_comment"].startswith("by hand; twin: ")


def test_a_plan_over_domains_is_no_ordinary_job(tmp_path: Path) -> None:
    part = {"placement": [{"domain": "US East", "gpus": 4}, {"domain": "b", "gpus": 2}], "iteration_s": 1.5}
    for places, end, feature in ((2, "heterogeneous job of 2 components", None), (1, "feature", "us-east")):
        held = {**part, "placement": part["placement"][:places]}  # type: ignore[index]
        text = json.dumps({"reason": 'it "fits" \u00e9\n', "starts_in_s": 12.0, "now": None, "alone": held})
        with faulty(b"HTTP/1.0 200 OK\r\n\r\n" + text.encode()) as url:
            (one,) = submitted(tmp_path, [{"user_id": 7, "comment": "twin:m"}], url=url)
        got = fields(one)
        assert got.get("features") == feature and end in got["admin_comment"]
        assert 'it "fits" \u00e9' in got["admin_comment"] and "starts in 12 s" in got["admin_comment"]
        assert "? tokens/s" in got["admin_comment"]


def test_a_component_of_another_job_is_left_alone(tmp_path: Path, address: str) -> None:
    first = {"user_id": 7, "het_job_offset": 0, "comment": f"twin:{MODEL},global_batch=8"}
    skipped, stranger = {"user_id": 7, "het_job_offset": 2}, {"user_id": 8, "het_job_offset": 1}
    again = {"user_id": 7, "het_job_offset": 1}
    _, *others = submitted(tmp_path, [first, stranger, skipped, again], url=address)
    assert not any(fields(one) for one in others)


@pytest.mark.parametrize(
    ("comment", "word"),
    [("twin:", "no model"), ("twin:m,tokens", "KEY=VALUE"), ("twin:m,a=$(id)", "KEY=VALUE"),
     ("twin:'`id`'", "no model"), ('twin:m,a="x"', "KEY=VALUE"), ("twin:m\\", "no model")],
)  # fmt: skip
def test_a_marker_that_says_something_else_reaches_no_shell(tmp_path: Path, comment: str, word: str) -> None:
    (one,) = submitted(tmp_path, [{"user_id": 7, "comment": comment}], url="http://127.0.0.1:1")
    assert word in one["user"][0][0] and "submitted as it is" in one["user"][0][0]
    assert not fields(one) and "error" not in one


def test_what_the_service_refuses_is_said_and_asked_again(tmp_path: Path, address: str) -> None:
    comments = ("twin:no-such-model", f"twin:{MODEL},global_batch=many", f"twin:{MODEL}")
    unknown, wrong, right = submitted(
        tmp_path, [{"user_id": 7, "comment": one} for one in comments], url=address
    )
    assert "status 4" in unknown["error"][0][0] and "no-such-model" in unknown["user"][0][0]
    assert "global_batch" in wrong["error"][0][0]
    assert fields(right)["admin_comment"] and not fields(unknown) and not fields(wrong)


FAULTS = {
    "refuses connections": (b"", 0.0, "no answer"),
    "is silent": (None, 0.0, "timed out"),
    "answers a byte at a time": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n{" + b" " * 99, 0.05, "timed out",
    ),
    "answers rubbish": (b"HTTP/1.0 200 OK\r\n\r\n{\"now\": ", 0.0, "no JSON"),
    "answers deep nesting": (b"HTTP/1.0 200 OK\r\n\r\n" + b"[" * 99_999, 0.0, "no JSON"),
    "answers without end": (b"HTTP/1.0 200 OK\r\n\r\n" + b" " * 3_000_000, 0.0, "no answer"),
    "fails": (b'HTTP/1.0 503 Busy\r\n\r\n{"message": "disk full"}', 0.0, "disk full"),
    "answers something else": (b'HTTP/1.0 200 OK\r\n\r\n{"now": {"placement": 3}}', 0.0, "a fault"),
}  # fmt: skip


@pytest.mark.parametrize("kind", FAULTS)
def test_a_job_goes_through_in_time_whatever_the_service_does(tmp_path: Path, kind: str) -> None:
    said, wait_s, word = FAULTS[kind]
    jobs = [{"user_id": 7, "comment": "twin:m"}] * 2
    with faulty(said, wait_s) as url:
        asked = "http://127.0.0.1:1" if kind == "refuses connections" else url
        start = time.monotonic()
        first, second = submitted(tmp_path, jobs, url=asked, timeout_s=0.4)
        took_s = time.monotonic() - start
    assert took_s < 1.5
    assert word in first["error"][0][0]
    assert not fields(first) and not fields(second)
    if word != "a fault":  # the second job of a lost service is not even asked about
        assert "not asked" in second["info"][0][0] and "error" not in second


def test_the_token_comes_from_a_file_and_is_in_no_command(tmp_path: Path) -> None:
    heard: list[bytes] = []
    (tmp_path / "head").write_text("Authorization: Bearer s3cret\n")
    with socket.create_server(("127.0.0.1", 0)) as ear:

        def answer() -> None:
            one, _ = ear.accept()
            heard.append(one.recv(65536))
            one.sendall(b'HTTP/1.0 403 No\r\n\r\n{"message": "role"}')
            one.close()

        thread = Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{ear.getsockname()[1]}"
        job = {"user_id": 7, "comment": "twin:m,flag=true,x=1.5,y=-2,z=a+b"}
        (one,) = submitted(tmp_path, [job], url=url, header_file=str(tmp_path / "head"))
        thread.join(5)
    head, _, body = heard[0].partition(b"\r\n\r\n")
    assert b"Authorization: Bearer s3cret" in head and head.startswith(b"POST /v1/admission ")
    assert json.loads(body) == {"model": "m", "job": {"flag": True, "x": 1.5, "y": -2, "z": "a+b"}}
    assert "status 403: role" in one["error"][0][0]
