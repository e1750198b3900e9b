"""Parameters of tests that cover much with few combinations."""

from itertools import combinations, product


def pairwise(*axes):
    """Few combinations of one value of each axis, in which any two values of two axes meet at least once."""

    def pairs(row):
        return set(combinations(enumerate(row), 2))

    rows = list(product(*(range(len(axis)) for axis in axes)))
    left, chosen = set().union(*map(pairs, rows)), []
    while left:
        chosen.append(max(rows, key=lambda row: len(pairs(row) & left)))
        left -= pairs(chosen[-1])
    return [tuple(list(axis)[i] for axis, i in zip(axes, row, strict=True)) for row in chosen]
