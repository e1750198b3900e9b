"""Every public call answers as it did when `record_answers.py` last wrote its answers down.

That script lists the cases, says how far an answer may move, and holds the rule for changing one.
"""

from itertools import groupby

import pytest
from record_answers import answered, cases, differences, load

RECORDED = load()
CASES = cases()
GROUPS = {
    name: list(group) for name, group in groupby(sorted(CASES, key=lambda c: c.group), key=lambda c: c.group)
}


def test_every_case_is_recorded_once_and_nothing_else():
    names = [case.id for case in CASES]
    assert len(set(names)) == len(names)
    assert set(names) == set(RECORDED)


@pytest.mark.parametrize("group", GROUPS)
def test_answers_are_the_recorded_ones(group):
    wrong, error = [], None
    for case in GROUPS[group]:
        expected = RECORDED[case.id]
        found, raised = answered(case)
        words = [text for excess, text in differences(case, expected, found) if not excess <= 1]
        if words:
            wrong.append(f"{case.id}: {'; '.join(words)}" + (f" ({raised})" if raised else ""))
            error = error or raised
    if wrong:
        raise AssertionError(f"{len(wrong)} of {len(GROUPS[group])} differ:\n" + "\n".join(wrong)) from error
