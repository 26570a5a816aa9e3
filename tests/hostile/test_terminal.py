"""Names that would act on a terminal: shown as what they are in text, kept exactly in JSON."""

import io
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
import rich.console
from click.testing import CliRunner

import cli
from commands.show.console import Console
from ingest.core.errors import UsageError
from ingest.core.terminal import HIDDEN, LONGEST, clipped, in_line, shown, visible
from ingest.pipeline.ingest import ingest

ACTING = [
    *("\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x07", "\x08\x08\x08", "\x9b2J", "a\rb", "\x7f"),
    *("\u202egpj.exe", "\u2066x\u2069", "\u200e", "\u200f", "\u061c", "\u2028", "\ufeff", "\ud800"),
]
MARKUP = ["[red]x[/red]", "[/x]", "[link=http://x]y[/link]", ":bomb:"]
each = pytest.mark.parametrize("text", ACTING, ids=ascii)


@each
def test_what_acts_is_escaped_and_the_rest_is_not(text: str) -> None:
    found = visible(f"Zürich, 東京\t{text}\n")
    assert not HIDDEN.search(found) and found.startswith("Zürich, 東京\t") and "\\" in found
    assert "\n" not in in_line(f"a\n{text}") and not HIDDEN.search(shown([{text: text}]))
    assert len(shown(text * 10_000)) < 2 * LONGEST and len(clipped(text * 10_000)) < 12 * LONGEST


@pytest.mark.parametrize("text", [*ACTING, *MARKUP], ids=ascii)
def test_no_table_line_or_note_acts(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    console = Console()
    console._out = rich.console.Console(width=300, markup=False, emoji=False, highlight=False)
    console.table(f"title {text}", ("name", f"column {text}"), [(text, 1.5)])
    console.line(text)
    console.note(text)
    done = capsys.readouterr()
    for screen in (done.out, done.err):
        assert not HIDDEN.search(screen)
        assert screen.count(visible(text)) == (4 if screen is done.out else 1)


@pytest.mark.parametrize("text", [*ACTING, *MARKUP], ids=ascii)
def test_no_progress_bar_acts(text: str) -> None:
    console, screen = Console(), io.StringIO()
    console._err = rich.console.Console(file=screen, force_terminal=True, color_system=None, width=200)
    with console.progress() as progress:
        progress.start(2, f"set {text}")
        progress.advance(1, f"file {text}")
    assert f"set {visible(text)}" in screen.getvalue() and f"file {visible(text)}" in screen.getvalue()


@each
def test_no_error_acts_and_json_is_exact(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.fail(UsageError(f"no {text} here"), as_json=True)
    done = capsys.readouterr()
    assert f"no {visible(text)} here" in done.err and not HIDDEN.search(done.err)
    assert json.loads(done.out)["message"] == f"no {text} here"


def test_a_hostile_data_set_is_listed_queried_and_drawn(tmp_path: Path) -> None:
    evil = "\x1b[2J$\\frac{\u202e[red]"
    folder, store = tmp_path / "set", tmp_path / "store"
    folder.mkdir()
    (folder / "dataset.toml").write_text(
        'reader = "columns"\ntable = "link_samples"\nlicence = "\\u001b[31mMIT"\n'
    )
    rows = [f"2024-01-01T00:0{n}:00Z,{evil},b,1e{n + 6},0.1" for n in range(5)]
    (folder / "a.csv").write_text(
        "\n".join(["ts,src,dst,bandwidth_bps,rtt_s", *rows]) + "\n", encoding="utf-8"
    )
    ingest([folder], store)

    def twin(*words: str) -> str:
        done = CliRunner().invoke(cli.twin, ["--store", str(store), *words], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout

    for words in (["traces"], ["sql", "select distinct src, dst from link_samples"]):
        assert not HIDDEN.search(twin(*words))
    assert visible(evil) in twin("sql", "select distinct src from link_samples")
    query = ["sql", "select distinct src from link_samples"]
    assert json.loads(twin(*query, "--json"))["rows"] == [{"src": evil}]
    assert json.loads(twin(*query, "--format", "json")) == [{"src": evil}]
    twin("traces", "set", "--plot", str(tmp_path / "out.svg"))
    picture = (tmp_path / "out.svg").read_text(encoding="utf-8")
    ElementTree.fromstring(picture)
    assert not HIDDEN.search(picture) and in_line(evil) in picture
