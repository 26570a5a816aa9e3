"""Which interval an estimate has, by where its stage times come from."""

import pytest

from twin.calibration.residual_quantiles import ALL, MODELS, OTHER_GPU, SCALE, SCHEDULE
from twin.cases import table_reader
from twin.cases.answer import answer, residuals
from twin.cases.resolve import resolve

SHAPE = {"layers": "8", "hidden": "2048", "micro_batches": "2"}


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({"gpu_model": "A100-80", "tp": "8"}, MODELS),
        ({"gpu_model": "A100-80", "dp": "16"}, SCALE),
        ({"gpu_model": "H100"}, OTHER_GPU),
        ({"gpu_model": "H100", "stage_forward_s": "1", "stage_backward_s": "1"}, SCHEDULE),
    ],
)
def test_the_interval_follows_the_basis(cells: dict[str, str], expected: object) -> None:
    case = resolve(table_reader.parse({**SHAPE, **cells}))
    spread = residuals(case)
    found = answer(case)
    assert spread is expected and found.interval == spread.basis
    assert (found.iter_s_low, found.iter_s_high) == spread.interval(found.iter_s)


def test_every_basis_has_its_own_name_and_holds_its_prediction() -> None:
    assert len({one.basis for one in ALL}) == len(ALL)
    assert all(one.low < 1 < one.high for one in ALL)
