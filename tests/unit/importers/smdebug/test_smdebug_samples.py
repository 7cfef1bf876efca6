"""Import of samples that SageMaker Debugger took of the machine."""

from __future__ import annotations

import pytest

from stepscope.importers.content import INVALID
from stepscope.importers.smdebug.system import parse_seconds
from tests.support.debugger_files import EPOCH_NS, DebuggerOutput, rows, sample

S, MS, US = 10**9, 10**6, 10**3


def test_every_dimension_in_our_units(output: DebuggerOutput) -> None:
    samples = [
        sample("CPUUtilization", "cpu0", 50),
        sample("CPUUtilization", "cpu1", 25.5),
        sample("I/OWaitPercentage", "cpu0", 12.5),
        sample("GPUUtilization", "gpu1", 100),
        sample("GPUMemoryUtilization", "gpu1", 43.76),
        sample("Memory", "MemoryUsedPercent", 7),
        sample("Algorithm", "eth0", 123456),
        sample("Platform", "eth0", 0),
        sample("Astrology", "moon", 1),
    ]
    output.system("algo-1", samples)
    run = output.imported()
    values = {(r["metric"], r["device"]): r["value"] for r in rows(run, "metrics")}
    assert values == pytest.approx(
        {
            ("core_busy_ratio", "0"): 0.5,
            ("core_busy_ratio", "1"): 0.255,
            ("cpu_busy_ratio", ""): 0.3775,
            ("cpu_busy_max_ratio", ""): 0.5,
            ("cpu_iowait_max_ratio", ""): 0.125,
            ("core_iowait_ratio", "0"): 0.125,
            ("cpu_iowait_ratio", ""): 0.125,
            ("gpu_busy_ratio", "1"): 1,
            ("gpu_memory_used_ratio", "1"): 0.4376,
            ("memory_used_ratio", ""): 0.07,
            ("network_bytes", "Algorithm:eth0"): 123456,
            ("network_bytes", "Platform:eth0"): 0,
        }
    )
    (status,) = run.reader.statuses().values()
    assert "1 samples of Astrology" in status.notes[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"1591160699.4570894", 1591160699457089400),
        (b"1591160699", 1591160699 * S),
        (b"1.5911606994570894e9", 1591160699457089400),
        (b'"1591160699.25"', 1591160699250000000),
        (b"null", INVALID),
        (b"NaN", INVALID),
        (b"1e300", INVALID),
    ],
)
def test_times_are_exact(text: bytes, expected: int) -> None:
    assert parse_seconds(text) == expected


def test_the_mean_core_of_each_sampling_tick(output: DebuggerOutput) -> None:
    """Samples within 20 ms are one sampling tick."""
    samples = [
        sample("CPUUtilization", f"cpu{core}", 10 * core + tick, second=tick / 2 + core / 200)
        for tick in range(4)
        for core in range(3)
    ]
    output.system("algo-1", samples[::-1])
    run = output.imported()
    means = rows(run, "metrics", metric="cpu_busy_ratio", device="")
    assert [r["t_ns"] for r in means] == [EPOCH_NS + n * 500 * MS for n in range(4)]
    assert [r["value"] for r in means] == pytest.approx([(10 + n) / 100 for n in range(4)])
    node = run.reader.nodes()["algo-1"]
    assert (node.cores_total, node.memory_bytes, node.sample_interval_ns) == (3, None, 500 * MS)


def test_copies_of_a_file_count_once(output: DebuggerOutput) -> None:
    samples = [sample("GPUUtilization", "gpu0", n, second=n) for n in range(5)]
    path = output.system("algo-1", samples)
    path.with_suffix(".json.corrupt").write_bytes(path.read_bytes()[:-20])
    run = output.imported()
    assert [r["value"] for r in rows(run, "metrics")] == [n / 100 for n in range(5)]


@pytest.mark.seed("DBP-17")
def test_nodes_stay_separate(output: DebuggerOutput) -> None:
    for number in (1, 2):
        samples = [sample("GPUUtilization", "gpu0", 10 * number, second=s, node=f"algo-{number}")
                 for s in range(3)]  # fmt: skip
        output.system(f"algo-{number}", samples)
    run = output.imported()
    assert sorted(run.reader.nodes()) == ["algo-1", "algo-2"]
    for number in (1, 2):
        values = run.metrics[f"algo-{number}"].series("gpu_busy_ratio", "0")
        assert values.tolist() == [number / 10] * 3


@pytest.mark.seed("DBU-15")
@pytest.mark.parametrize(
    ("end", "sentence"),
    [
        ('{"Type": "gpu", "Name":"gpu1", "Dim', "its last line is truncated"),
        ('nonsense\n{"also": 1}\n', "2 of 4 lines could not be read"),
    ],
)
def test_missing_samples_are_reported(
    output: DebuggerOutput, capsys: pytest.CaptureFixture[str], end: str, sentence: str
) -> None:
    samples = [sample("GPUUtilization", "gpu0", 50, second=s) for s in range(2)]
    output.system("algo-1", samples, end=end)
    run = output.imported()
    assert len(rows(run, "metrics")) == 2
    assert sentence in capsys.readouterr().err
    (status,) = run.reader.statuses().values()
    assert sentence in status.notes[0]
