"""Figures of the structure of one or more checkouts, side by side.

python -m benchmarks.house OTHER_CHECKOUT .
"""

import ast
import re
import sys
from collections import Counter
from pathlib import Path
from statistics import median

PACKAGES = ("commands", "replay", "policy", "twin", "ingest")
WORDS = {
    "footage", "footages", "film", "films", "filmed", "course", "courses", "crew", "standing", "lesson",
    "lessons", "scout", "tenant", "tenants", "unfitted", "foresight", "hindsight", "sensing", "surroundings",
    "story", "rehearsal", "teller", "menu", "paced", "outlook", "told", "invented", "gathered", "climbed",
    "strangers",
}  # fmt: skip
DANGLING = re.compile(r"\bspec[ /]?\d|\bphase \d,? section")
ASKING = re.compile(r"(What|Whether|Who|Whom|Whose|How|Where|When|Why)\b")


def figures(tree: Path) -> dict[str, str]:
    """The figures of one checkout by what they say."""
    paths = [tree / "cli.py", *(path for name in PACKAGES for path in (tree / name).rglob("*.py"))]
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    parsed = {path: ast.parse(text) for path, text in texts.items()}
    nodes = [node for one in parsed.values() for node in ast.walk(one)]
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    classes = Counter(node.name for node in nodes if isinstance(node, ast.ClassDef))
    modules = [path for path in paths if path.name != "__init__.py"]
    folders = Counter(path.parent.relative_to(tree).as_posix() for path in modules)
    largest, count = folders.most_common(1)[0]
    lengths = [(node.end_lineno or node.lineno) - node.lineno + 1 for node in functions]
    arguments = [len(node.args.args) + len(node.args.kwonlyargs) for node in functions]
    public = [
        ast.get_docstring(node) or ""
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
    ]
    identifiers = [
        getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "arg", None)
        or getattr(node, "name", None) or ""
        for node in nodes
        if isinstance(node, ast.Name | ast.Attribute | ast.arg | ast.FunctionDef | ast.ClassDef)
    ]  # fmt: skip
    private = sum(
        1 for name in identifiers if WORDS & set(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_"))
    )
    return {
        "folders with modules": f"{len(folders)}",
        "modules in the largest folder": f"{count} ({largest})",
        "class names defined twice": str(sum(1 for n in classes.values() if n > 1)),
        "identifiers with private words": str(private),
        "references to texts that readers do not have": str(
            sum(len(DANGLING.findall(text)) for text in texts.values())
        ),
        "public docstrings that begin with a question word": str(sum(map(bool, map(ASKING.match, public)))),
        "functions with more than 17 arguments": str(sum(n > 17 for n in arguments)),
        "lines of product code": f"{sum(len(text.splitlines()) for text in texts.values()):,}",
        "median lines of a function": f"{median(lengths):g}",
        "functions over 60 lines": str(sum(length > 60 for length in lengths)),
        "median lines of a file": f"{median(len(texts[path].splitlines()) for path in modules):g}",
    }


def main() -> None:
    trees = [Path(name).resolve() for name in sys.argv[1:] or ["."]]
    columns = [figures(tree) for tree in trees]
    print("| figure |" + "".join(f" {tree.name} |" for tree in trees))
    print("|---|" + "---:|" * len(trees))
    for name in columns[0]:
        print(f"| {name} |" + "".join(f" {column[name]} |" for column in columns))


if __name__ == "__main__":
    main()
