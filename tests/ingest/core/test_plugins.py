"""Entry points of distributions that lie in a folder of `sys.path`, as an installed one does."""

from collections.abc import Callable
from typing import Any

from ingest.core import plugins

Install = Callable[..., None]
GROUP = "twin.test"


def test_the_named_object_is_imported(install: Install) -> None:
    install("links-extra", GROUP, {"mine": "extra_links:Mine"}, extra_links="class Mine: factor = 42\n")
    found, problems = plugins.load(GROUP, ())
    assert found["mine"].factor == 42 and problems == []
    assert plugins.load("twin.other", ()) == ({}, [])


def test_a_plugin_that_fails_is_named_and_the_others_are_loaded(install: Install) -> None:
    points = {
        "a": "no_such_module:X",
        "b": "raising:X",
        "c": "leaving:X",
        "d": "fine:Missing",
        "e": "fine:Good",
    }
    install(
        "broken",
        GROUP,
        points,
        raising="raise RuntimeError('no GPU')\n",
        leaving="raise SystemExit(3)\n",
        fine="class Good: pass\n",
    )
    found, problems = plugins.load(GROUP, ())
    assert list(found) == ["e"]
    assert [problem.split(" is left out: ")[0] for problem in problems] == [
        f"plugin {name!r} of broken 1.5 ({GROUP})" for name in "abcd"
    ]
    reasons = ["ModuleNotFoundError: No module named 'no_such_module'", "RuntimeError: no GPU"]
    reasons += ["SystemExit: 3", "AttributeError: module 'fine' has no attribute 'Missing'"]
    assert [problem.split(" is left out: ")[1] for problem in problems] == reasons


def test_a_taken_name_goes_to_the_shipped_object_and_then_to_the_first_distribution(install: Install) -> None:
    install("b-late", GROUP, {"shipped": "late:X", "twice": "late:X"}, late="X = 'late'\n")
    install("a-early", GROUP, {"twice": "early:X"}, early="X = 'early'\n")
    found, problems = plugins.load(GROUP, {"shipped"})
    assert found == {"twice": "early"}
    assert problems == [
        f"plugin {name!r} of b-late 1.5 ({GROUP}) is left out: the name {name!r} is taken"
        for name in ("shipped", "twice")
    ]


def test_what_the_check_refuses_is_left_out(install: Install) -> None:
    def check(name: str, found: Any) -> Any:
        if not callable(found):
            raise ValueError(f"{found!r} is no class")
        return found()

    install("mixed", GROUP, {"good": "mixed:Good", "bad": "mixed:BAD"}, mixed="class Good: pass\nBAD = 7\n")
    found, (problem,) = plugins.load(GROUP, (), check)
    assert type(found["good"]).__name__ == "Good"
    assert problem == f"plugin 'bad' of mixed 1.5 ({GROUP}) is left out: 7 is no class"
