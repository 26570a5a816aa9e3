"""Assertions vanish under `python -O`: none holds what data could break."""

import ast
from pathlib import Path

PACKAGES = ("commands", "ingest", "lab", "policy", "replay", "service", "twin")
INVARIANTS = {
    "policy/bound/candidate_plans.py", "policy/hippo/env/gym.py", "replay/log/fold.py",
    "twin/estimation/estimator.py", "twin/filters/kalman_bank.py", "twin/pipeline/crosspipe_schedule.py",
    "twin/pipeline/fixed_order_kernel.py", "twin/pipeline/pipeline.py", "twin/power/capped_kernel.py",
    "twin/power/step_series.py", "twin/queue/kernel.py",
    "twin/nodes/kernel.py", "twin/sharing/answers.py", "twin/sharing/engine.py",
    "twin/world/decision_trigger.py",
}  # fmt: skip
"""Modules that state invariants of their own arrays and names, which no data reach unchecked."""


def narrows(test: ast.expr) -> bool:
    """True for `x is not None` and `isinstance(x, T)`: what the type checker cannot see by itself."""
    if isinstance(test, ast.BoolOp):
        return all(narrows(value) for value in test.values)
    if isinstance(test, ast.Compare):
        last = test.comparators[-1]
        return isinstance(test.ops[0], ast.IsNot) and isinstance(last, ast.Constant) and last.value is None
    return isinstance(test, ast.Call) and isinstance(test.func, ast.Name) and test.func.id == "isinstance"


def test_assertions_narrow_types_or_state_invariants(repository: Path) -> None:
    found, stating = [], set()
    for path in sorted(path for name in PACKAGES for path in (repository / name).rglob("*.py")):
        name = path.relative_to(repository).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Assert) and not narrows(node.test):
                stating.add(name)
                if name not in INVARIANTS:
                    found.append(f"{name}:{node.lineno}: {ast.unparse(node.test)}")
    assert found == []
    assert stating == INVARIANTS
