"""Coordinates of ranks, against the order of torch's DeviceMesh."""

from __future__ import annotations

import numpy as np
import pytest

from stepscope.errors import UsageError
from stepscope.run import parse_mesh


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("dp=4,pp=2,tp=2", (4, 2, 2)),
        ("pp=3", (3,)),
        (" ep=2 , dp=5 ", (2, 5)),
        ("tp=1,cp=7", (1, 7)),
    ],
)
def test_ranks_are_in_row_major_order(text: str, shape: tuple[int, ...]) -> None:
    count = int(np.prod(shape))
    mesh = parse_mesh(text, count)
    for rank in range(count):
        assert tuple(mesh.locate(rank).values()) == np.unravel_index(rank, shape)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dp=4,pp=3", "4 x 3 is 12, but the job has 8 ranks; give sizes that multiply to that"),
        ("xp=8", "--mesh: 'xp' is no dimension; use dp, pp, tp, ep, cp"),
        ("", "--mesh: '' is no dimension"),
        ("dp=2,dp=4", "--mesh: the dimension dp is given twice."),
        ("dp=0,pp=8", "--mesh: 'dp=0' needs a size of 1 or more, such as dp=2."),
        ("dp=-8", "--mesh: 'dp=-8' needs a size of 1 or more"),
        ("dp", "--mesh: 'dp' needs a size of 1 or more"),
        ("dp=٣", "needs a size of 1 or more"),
        ("dp=99999999999999999999", "needs a size of 1 or more"),
    ],
)
def test_a_bad_mesh_is_one_sentence(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_mesh(text, 8)
    assert message in str(caught.value)
