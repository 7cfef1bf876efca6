"""Series of samples."""

from __future__ import annotations

import numpy as np

from stepscope.analysis.series import Device, Series, merge_series, numeric_sort_key


def series(*samples: tuple[int, float]) -> Series:
    return Series(
        np.array([t for t, _ in samples], dtype=np.int64), np.array([value for _, value in samples])
    )


def test_sorting_keeps_the_order_of_equal_times() -> None:
    unsorted = series((5, 0.1), (2, 0.2), (5, 0.3), (2, 0.4))
    assert unsorted.sort().t_ns.tolist() == [2, 2, 5, 5]
    assert unsorted.sort().value.tolist() == [0.2, 0.4, 0.1, 0.3]
    ordered = unsorted.sort()
    assert ordered.sort() is ordered


def test_merged_samples_are_in_order_of_time() -> None:
    merged = merge_series([series((3, 0.3), (9, 0.9)), series((4, 0.4)), series()])
    assert list(zip(*(part.tolist() for part in merged), strict=True)) == [
        (3, 0.3),
        (4, 0.4),
        (9, 0.9),
    ]
    assert not len(merge_series([]).t_ns)


def test_mean_of_a_range_of_time() -> None:
    samples = series(*((t, float(t)) for t in range(10)))
    assert samples.mean_between(2, 5) == 3
    assert samples.mean_between(10, 20) is None


def test_devices() -> None:
    assert sorted(["10", "2", "", "eth0"], key=numeric_sort_key) == ["", "eth0", "2", "10"]
    assert (str(Device("n0", "3")), Device("n0", "3").gpu_label) == ("n0/3", "GPU 3 of node n0")
