"""The public calls answer as recorded by `record_answers.py`, which has the rule for a change."""

import numpy as np
import pytest
from record_answers import answered, cases, load

RECORDED = load()
CASES = cases()


def test_every_case_is_recorded_once_and_nothing_else():
    names = [case.id for case in CASES]
    assert len(set(names)) == len(names)
    assert set(names) == set(RECORDED)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_answer_is_the_recorded_one(case):
    found, error = answered(case)
    wrong = differences(case, RECORDED[case.id], found)
    if wrong:
        raise AssertionError("; ".join(wrong)) from error


def differences(case, expected, found):
    """A sentence for each part that differs by more than the allowed difference."""
    wrong = [f"{name}: only in one of them" for name in expected.keys() ^ found.keys()]
    for name in expected.keys() & found.keys():
        was, now = expected[name], found[name]
        if was.shape != now.shape or (was.dtype != now.dtype and was.dtype.kind != "U"):
            wrong.append(f"{name}: was {was.dtype} {was.shape} and is {now.dtype} {now.shape}")
        elif was.dtype.kind == "f":
            tolerance = case.lam_tolerance if name.endswith(" lam") else case.tolerance
            off = np.abs(was - now).max() / (np.abs(was).max() or 1)
            if not (off <= tolerance or np.array_equal(was, now, equal_nan=True)):
                wrong.append(f"{name}: differs by {off:.2g}, and {tolerance:.0e} is allowed")
        elif not np.array_equal(was, now):
            wrong.append(f"{name}: was {was} and is {now}")
    return wrong
