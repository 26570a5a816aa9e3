"""Files of settings as enemies write them, and what reading them comes to.

`KINDS` are the files that users write, or are sent: each with a good one, and what reads it. `spoilt` makes a
bad one of a good one, by choices that the caller draws.
"""

import csv
import io
import json
import random
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ingest.core.errors import TwinError
from ingest.core.terminal import HIDDEN
from ingest.parsing import dataset
from policy.hippo.networks import hippo_config
from replay.store.decision_codec import plan_from_json, plan_to_json
from tests.support.worlds import toy_scenario, toy_setup
from twin.cases import table_answers
from twin.core.plan import Plan, Share
from twin.scenario import prepare

LIMIT_S = 2.0
"""Of processor time; other processes do not make a hang."""
VALUES: list[Any] = [
    *(None, True, False, "", " ", "x", [], {}, [[]], {"a": 1}, [1, 2], "true", "null", "~"),
    *(0, -1, 1, 7, 8, 2**31, 2**63 - 1, 2**63, 2**64, 10**18, 10**300, -(10**30), 9_999_999),
    *(0.0, -0.0, 0.5, 1e-320, 5e-324, 1e-9, 1e308, -1e308, float("inf"), float("-inf"), float("nan")),
    *(
        "1e999",
        "1e-400",
        "9" * 400,
        "9" * 5000,
        "0x10",
        "1_000",
        "1:30",
        "\u0663",
        "1,5",
        "5 Gb/s",
        "nan",
        "inf",
    ),
    *("../../x", "/etc/passwd", "a/b", ".", "..", "a" * 400, "a\0b", "a\nb", "a b", "a > b", "-x", "*"),
    *(
        "\x1b[31mred",
        "\x07",
        "\u202eevil",
        "\u2066x",
        "\ufeff",
        "\u200f",
        "[red]x[/red]",
        "$\\frac{",
        "\x9b1m",
    ),
    *("2024-01-01", "2024-13-45", "%s", "{0}", "${HOME}", "<script>", "'; drop table runs; --", "=1+1"),
]
"""Put where something else should stand."""
RAW = [
    b"&a [*a]", b"*a", b"!!timestamp foo", b"!!python/object/apply:os.system ['true']", b"<<: *x", b"!x y",
    b"[" * 3000, b"{a: " * 3000, b"- " * 3000, b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\r",
    b"9" * 5000, b'"\\ud800"', b"? [a, b]\n: c\n", b"---\n", b"...\n", b"%YAML 9.9\n", b"\t", b"'", b'"',
    b"a: &l [x,x,x,x,x,x,x,x]\nb: &m [*l,*l,*l,*l,*l,*l,*l]\nc: [*m,*m,*m,*m,*m,*m,*m,*m]\n", b"{",
    b"[" + b"a." * 3000 + b"b]\n", b"a" * 100_000, b"0x_", b"1:1:1:1.5", b"2024-13-45T99:99:99Z",
]  # fmt: skip
"""Put between the bytes of a file."""


@dataclass(frozen=True)
class DocumentKind:
    """A kind of file: name of the file, a good content, and what reads it."""

    name: str
    good: tuple[bytes, ...]
    read: Callable[[Path], object]
    parse: Callable[[bytes], Any]
    write: Callable[[Any], bytes]


@dataclass(frozen=True)
class ReadingOutcome:
    """What reading came to: accepted, message, hang or traceback; the text of a message or traceback."""

    what: str
    text: str
    seconds: float


def outcome(kind: DocumentKind, content: bytes, folder: Path) -> ReadingOutcome:
    """Reads `content` as a file of that kind in `folder`."""
    path = folder / kind.name
    path.write_bytes(content)
    began = time.process_time()
    what, text = "accepted", ""
    try:
        kind.read(path)
    except TwinError as error:
        what, text = "message", str(error)
        if fault := _fault(text, path):
            what, text = "traceback", f"{fault}: {text!r}"
    except BaseException as error:  # noqa: BLE001 - that nothing else comes out is what is asked
        what, text = "traceback", repr(error)[:500]
    seconds = time.process_time() - began
    return ReadingOutcome("hang" if seconds > LIMIT_S and what != "traceback" else what, text, seconds)


def _fault(text: str, path: Path) -> str:
    """What is wrong with a message."""
    if len(text.splitlines()) > 3:
        return "more than three lines"
    if path.suffix != ".json" and str(path) not in text:
        return "does not name the file"
    if HIDDEN.search(text):
        return "holds control characters"
    return "too long" if len(text) > 3000 else ""


def spoilt(kind: DocumentKind, seed: int) -> bytes:
    """A bad file of that kind; the same for the same seed."""
    chance = random.Random(seed)
    content = chance.choice(kind.good)
    if chance.random() < 0.7:
        document = kind.parse(content)
        for _ in range(chance.choice((1, 1, 1, 2, 5))):
            document = _changed(document, chance)
        content = kind.write(document)
    if chance.random() < 0.4:
        for _ in range(chance.choice((1, 1, 2, 4))):
            content = _damaged(content, chance)
    return content


def _changed(document: Any, chance: random.Random) -> Any:
    """A copy with one value replaced, one key lost, renamed or added, or one entry repeated."""
    document = deepcopy(document)
    places = list(_places(document))
    if not places:
        return chance.choice(VALUES)
    holder, at = chance.choice(places)
    match chance.randrange(8):
        case 0:
            del holder[at]
        case 1 if isinstance(holder, dict):
            holder[str(chance.choice(VALUES))] = holder.pop(at)
        case 2 if isinstance(holder, dict):
            holder[str(at)[:-1]] = chance.choice(VALUES)
        case 3 if isinstance(holder, list):
            holder += [holder[at]] * chance.choice((1, 100, 300))
        case 4:
            holder[at] = [holder[at]] * chance.choice((1, 3, 2000))
        case _:
            holder[at] = chance.choice(VALUES)
    return document


def _places(value: Any) -> Any:
    """Every value below the top, as its container and its key or index."""
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for at, inner in entries:
        yield value, at
        yield from _places(inner)


def _damaged(content: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(content) + 1)
    match chance.randrange(5):
        case 0:
            return content[:at] + chance.choice(RAW) + content[at:]
        case 1:
            return content[:at] + content[at + chance.choice((1, 3, 30, 300)) :]
        case 2:
            lines = content.split(b"\n")
            lines.insert(chance.randrange(len(lines) + 1), chance.choice(lines))
            return b"\n".join(lines)
        case 3:
            return content[:at] + bytes([chance.randrange(256)]) + content[at + 1 :]
        case _:
            return chance.choice(
                (content[:at], content * 2, content.replace(b"\n", b"\r"), b"\xef\xbb\xbf" + content,
                 content.decode("utf-8", "replace").encode("utf-16"))
            )  # fmt: skip


_TOY = toy_setup(3, seconds=3600)


def _scenario(path: Path) -> object:
    """Reads a scenario, and prepares its world where it is one of the three domains of the toy."""
    scenario = prepare.load(str(path))
    prepare.digest(scenario)
    if scenario.domains == _TOY.scenario.domains:
        try:
            prepare.assemble(scenario, _TOY.wan, window="all", filters=_TOY.filters)
        except TwinError as error:  # a message about what the scenario asks for, which names the key
            assert str(error)
    return scenario


def _estimated(path: Path) -> object:
    found = table_answers.estimate(path)
    for bad in found.failures:
        fault = _fault(f"{path}: {HIDDEN.sub('', bad.message)}", path)
        assert not fault, (fault, bad.message)
    return found.to_json()


def _options(path: Path) -> object:
    return dataset.options(path.parent).digest()


def _settings(path: Path) -> object:
    return hippo_config.changed(hippo_config.shipped(), path)


def _plan(path: Path) -> object:
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return None  # the log is read elsewhere
    return plan_from_json(value if isinstance(value, dict) else {"shares": value})


def _yaml(value: Any) -> bytes:
    text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
    return str(text).encode("utf-8", "surrogatepass")


def _from_csv(content: bytes) -> Any:
    return list(csv.reader(content.decode().splitlines()))


def _to_csv(rows: Any) -> bytes:
    out = io.StringIO()
    for row in rows if isinstance(rows, list) else [rows]:
        cells = row if isinstance(row, list) else [row]
        out.write(",".join(_cell(cell) for cell in cells) + "\n")
    return out.getvalue().encode("utf-8", "surrogatepass")


def _cell(value: Any) -> str:
    text = ";".join(map(str, value)) if isinstance(value, list) else "" if value is None else _text(value)
    return f'"{text}"' if "," in text else text


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, int | float) else str(value)


def _from_toml(content: bytes) -> Any:
    import tomllib

    return tomllib.loads(content.decode())


def _to_toml(value: Any) -> bytes:
    """TOML of tables of plain values; what TOML cannot say is written as JSON would have it."""
    if not isinstance(value, dict):
        return json.dumps(value, default=str).encode()
    lines = [f"{_toml_key(k)} = {_toml(v)}" for k, v in value.items() if not isinstance(v, dict)]
    for key, table in value.items():
        if isinstance(table, dict):
            lines += [f"[{_toml_key(key)}]", *(f"{_toml_key(k)} = {_toml(v)}" for k, v in table.items())]
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogatepass")


def _toml_key(key: Any) -> str:
    return json.dumps(str(key), ensure_ascii=False)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml_key(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, default=str, ensure_ascii=False).replace("NaN", "nan").replace("Infinity", "inf")


_ROOT = Path(__file__).resolve().parents[2]
_SCENARIOS = tuple(
    (_ROOT / "configs" / "scenarios" / f"{name}.yaml").read_bytes() for name in ("storm", "queue", "tri-jobs")
)
_TOY_SCENARIO = _yaml(toy_scenario(3).model_dump(mode="json", exclude_none=True))
_PERTURBED = _yaml(
    toy_scenario(
        3,
        perturbation={"noise": {"clip": 0.3}, "regimes": [{"per_day": 12, "mean_s": 900}]},
        outages=[{"src": "d0", "dst": "d1", "at_s": 60, "for_s": 60}],
        link_changes=[{"src": "*", "dst": "d1", "bandwidth_factor": 0.5, "at_s": 100, "for_s": 200}],
        gpu_faults=[{"domain": "d0", "gpus": 1, "at_s": 5, "for_s": 10}],
        slowdowns=[{"domain": "d2", "factor": 2, "at_s": 5, "for_s": 10}],
        node_failures={"mtbf_gpu_h": 51000},
        jobs=[{"name": "a", "tokens": 100000}, {"name": "b", "priority": 1, "submit_s": 60}],
    ).model_dump(mode="json", exclude_none=True)
)
_CASES = (
    b"case,gpu_model,layers,hidden,heads,tp,pp,dp,micro_batch,global_batch,schedule,cuts,domains,wan_bps,"
    b"wan_latency_s\n"
    b"a,A100-80,32,4096,32,4,2,1,1,16,1f1b,16-16,a-b,5e9,0.05\n"
    b"b,H100,80,8192,64,8,4,2,1,64,gpipe,,2,1e10;2e10,0.1\n"
    b"c,A100-80,48,4096,32,2,4,1,1,16,interleaved,,1,,\n"
)
_SCHEDULES = b"layers,hidden,pp,global_batch,schedule,p2p\n" + b"".join(
    f"32,4096,4,8,{schedule},{p2p}\n".encode()
    for schedule in ("gpipe", "1f1b", "interleaved", "crosspipe")
    for p2p in ("blocking", "overlapped")
)
_CASE_LIST = (
    b"cases:\n"
    b"- {case: a, pp: 4, stage_forward_s: [0.1, 0.2, 0.1, 0.1], stage_backward_s: 0.3, micro_batches: 8,\n"
    b"   boundary_transfer_s: [0, 0.5, 0], boundary_latency_s: [0, 0.1, 0]}\n"
    b"- {case: b, layers: 24, hidden: 2048, gpus: 16, tp: 2, pp: 4, global_batch: 64, zero: 1}\n"
)
_DATASET = (
    b'name = "my-links"\nreader = "columns"\ntable = "link_samples"\nlicence = "MIT"\nsynthetic = false\n'
    b'interval_s = 21.0\ndelimiter = ";"\ntimezone = "Europe/Berlin"\nstreams = 1\nkind = "tcp"\n'
    b'gpus_per_node = 8\nassumptions = ["one", "two"]\n[sites]\n"us-east-1" = "virginia"\n[columns]\n'
    b'bandwidth_bps = "mbps"\n[units]\nbandwidth_bps = "Mb/s"\n[values]\nsrc = "paris"\n[leave_out]\n'
    b'"*.json" = "why"\n[derive.other]\nmethod = "available"\n'
)
_SETTINGS = (
    b"gnn: {type: GATv2, num_layers: 2, hidden_dim: 32}\nppo:\n  lr: 3.0e-4\n  num_steps: 64\n"
    b"rollout: {environments: 4, weights: [0.6, 0.2, 0.2]}\nimitation: {steps: 10}\niterations: 3\nseed: 4\n"
)
_PLAN = json.dumps(
    plan_to_json(Plan((Share(0, 17, 2, 1, (0, 1)), Share(1, 17, 2, 1, (0, 1))), 1, 1, 8, routes=((0, 2, 1),)))
).encode()


def _load_yaml(content: bytes) -> Any:
    return yaml.safe_load(content)


KINDS = (
    DocumentKind("scenario.yaml", (*_SCENARIOS, _TOY_SCENARIO, _PERTURBED), _scenario, _load_yaml, _yaml),
    DocumentKind("cases.csv", (_CASES, _SCHEDULES), _estimated, _from_csv, _to_csv),
    DocumentKind("cases.yaml", (_CASE_LIST,), _estimated, _load_yaml, _yaml),
    DocumentKind("dataset.toml", (_DATASET,), _options, _from_toml, _to_toml),
    DocumentKind("settings.yaml", (_SETTINGS,), _settings, _load_yaml, _yaml),
    DocumentKind("plan.json", (_PLAN,), _plan, json.loads, lambda value: json.dumps(value).encode()),
)
