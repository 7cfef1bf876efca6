"""Smaller machines: where the record carries such advice, and where not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from stepscope.cost.job_cost import JobCost
from stepscope.cost.prices import Offer, PriceTable, published_prices
from stepscope.cost.pricing import Priced, PriceUsed
from stepscope.cost.right_sizing import FULL, LISTED_PRICES, RightSizing, right_sizing
from stepscope.cost.usage import Level, NodeUsage, node_usage
from stepscope.diagnosis.verdict import Suspect, Verdict
from stepscope.testing import RunBuilder

GIB = 1 << 30
S = 1_000_000_000


def level(value: float, *, mean: float | None = None, count: int = 1000) -> Level:
    return Level(mean=value if mean is None else mean, p95=value, peak=value, count=count)


def node(
    name: str = "n0",
    *,
    gpus: int = 4,
    gpu: float = 0.135,
    cpu: float | None = 0.244,
    cpu_mean: float = 0.1,
    cores: float = 32,
    memory: float | None = 20,
    held: float | None = 1,
    count: int = 1000,
) -> NodeUsage:
    devices = [str(number) for number in range(gpus)]
    return NodeUsage(
        node=name,
        cores=cores,
        cpu=None if cpu is None else level(cpu, mean=cpu_mean, count=count),
        memory_bytes=None if memory is None else memory * GIB,
        memory_ratio=None,
        gpus={each: level(gpu, count=count) for each in devices},
        gpu_memory_bytes={} if held is None else dict.fromkeys(devices, held * GIB),
        gpu_memory_ratio={},
    )


def verdict(suspect: Suspect = "insufficient_evidence", share: float = 0.0) -> Verdict:
    return Verdict(
        suspect=suspect,
        cause="",
        share_ratio=share,
        confidence_ratio=1,
        headline="",
        stages=[],
        evidence=[],
        ruled_out=[],
        fixes=[],
    )


def priced(kind: str, table: PriceTable | None = None) -> Priced:
    table = published_prices() if table is None else table
    offer = table.find(kind)
    assert offer is not None
    used = PriceUsed(
        usd_per_hour=float(offer.usd_per_hour),
        said=offer.origin,
        instance_type=kind,
        as_of=None,
        source=None,
    )
    return Priced(usd_per_hour=offer.usd_per_hour, used=used, offer=offer, table=table)


def advice(
    nodes: list[NodeUsage],
    kind: str = "ml.p3.8xlarge",
    *,
    seconds: int = 503,
    said: Verdict | None = None,
) -> RightSizing:
    price = priced(kind)
    paid = JobCost(
        instance_count=len(nodes), usd_per_hour=price.usd_per_hour, duration_ns=seconds * S
    )
    return right_sizing(nodes, verdict() if said is None else said, paid, price)


def test_the_published_case(tmp_path: Path) -> None:
    """Three p3.8xlarge whose GPUs are at 13.5 % and CPUs at 24.4 % in the 95th percentile: two
    p3.2xlarge were what its owners went to, at 17.4 % of the cost."""
    run = RunBuilder(tmp_path / "run", cores=32)
    for number in range(1, 4):
        name = f"algo-{number}"
        run.rank(number - 1, node=name).draw("annotation 503000")
        run.metric("cpu_busy_ratio", lambda s: 0.244 if s % 10 < 1 else 0.08, node=name)
        run.metric("memory_used_bytes", 20 * GIB, node=name)
        for gpu in "0123":
            run.metric("gpu_busy_ratio", 0.135, device=gpu, node=name)
            run.metric("gpu_memory_used_bytes", 1 * GIB, device=gpu, node=name)
    found = advice(node_usage(run.open()))
    best = found.choices[0]
    assert (best.instance_type, best.instance_count) == ("ml.p3.2xlarge", 2)
    assert best.gpu_p95_ratio == pytest.approx(12 * 0.135 / 2)
    assert best.cpu_mean_ratio == pytest.approx(96 * (0.1 * 0.244 + 0.9 * 0.08) / 16, rel=0.01)
    # 3 x 14.688 x 503 s and 2 x 3.825 x 503 s, each rounded to the cent.
    assert best.job_usd == float(round(Decimal(2) * Decimal("3.825") * 503 / 3600, 2)) == 1.07
    assert best.saving_usd == pytest.approx(6.16 - 1.07)
    assert f"{best.saving_ratio:.1%}" == "82.6%"
    assert best.caution is not None
    assert "23.4 cores" in best.caution  # 24.4 % of 96, where two of them have 16
    assert found.evidence[0] == "algo-1: the 95th percentile of CPU 24.4%, 4 GPUs 13.5%"
    assert "what the job waited for is not known" in found.evidence[-1]
    assert "2 x ml.p3.2xlarge instead of 3 x ml.p3.8xlarge would cost 82.6% less" in found.headline
    assert "2020-12-10" in best.said
    # One of the same machines holds the peaks as well, and is the second choice.
    second = found.choices[1]
    assert (second.instance_type, second.instance_count) == ("ml.p3.8xlarge", 1)
    assert second.caution is None
    assert found.assumptions


def test_nothing_recommended_is_filled_beyond_the_limit() -> None:
    for gpu in (0.01, 0.2, 0.45, 0.69):
        for held in (0.1, 6, 14):
            for choice in advice([node(gpu=gpu, held=held)], "p3.8xlarge").choices:
                filled = (
                    choice.gpu_p95_ratio,
                    choice.cpu_mean_ratio,
                    choice.memory_ratio,
                    choice.gpu_memory_ratio,
                )
                assert max(filled) <= FULL
                assert choice.saving_usd > 0


@pytest.mark.parametrize(
    ("changed", "fewest"),
    [
        ({}, 1),
        ({"held": 15}, 5),  # 60 GiB on GPUs of 16, filled to 85 %
        ({"memory": 200}, 4),  # GiB, on machines with 61
        ({"cpu_mean": 0.3, "cpu": 0.5}, 2),  # 9.6 cores, on machines with 8
        ({"gpu": 0.6}, 3),  # 2.4 GPUs
    ],
)
def test_what_decides_how_many(changed: dict[str, float], fewest: int) -> None:
    """Of p3.2xlarge instead of one p3.8xlarge, which costs as much as four of them."""
    use = {"held": 1.0, "memory": 20.0, "cpu_mean": 0.1, "cpu": 0.244, "gpu": 0.135} | changed
    found = {
        each.instance_type: each.instance_count
        for each in advice(
            [node(**use)],
            "p3.8xlarge",  # type: ignore[arg-type]
        ).choices
    }
    if fewest < 4:
        assert found == {"p3.2xlarge": fewest}
    else:
        assert found == {}


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ([node(gpus=0)], "no GPU was sampled"),
        ([], "no GPU was sampled"),
        ([node(cpu=None)], "the CPU was not sampled"),
        ([node(count=99)], "99 samples are too few"),
        ([node(), node("n1", gpu=0.7)], "a GPU of n1 is used: its 95th percentile is 70.0%"),
        ([node(cpu=0.7)], "the CPU of n0 is used: its 95th percentile is 70.0%"),
        ([node(memory=None)], "how much memory the machines used is not known"),
        ([node(held=None)], "how much memory the GPUs used is not known"),
    ],
)
def test_where_the_record_carries_no_advice(nodes: list[NodeUsage], why: str) -> None:
    found = advice(nodes)
    assert found.choices == []
    assert found.headline.startswith("No smaller machine is recommended: ")
    assert why in found.headline


def test_one_of_everything_is_not_made_smaller() -> None:
    found = advice([node(gpus=1, cores=8)], "p3.2xlarge")
    assert found.choices == []
    assert (
        "no smaller and cheaper choice of machines with V100 GPUs (AWS us-east-1)" in found.headline
    )


@pytest.mark.parametrize("suspect", ["data_pipeline", "communication", "framework_overhead"])
def test_what_the_job_waits_for_is_mended_first(suspect: Suspect) -> None:
    found = advice([node()], said=verdict(suspect, 0.44))
    assert found.choices == []
    assert "owns 44% of the step" in found.headline
    assert "mend it first" in found.headline


@pytest.mark.parametrize("suspect", ["model", "healthy"])
def test_a_job_that_waits_for_nothing_may_still_be_small(suspect: Suspect) -> None:
    found = advice([node()], said=verdict(suspect, 0.9))
    assert found.choices
    assert not any("not known" in line for line in found.evidence)


def test_without_a_type_of_machine() -> None:
    told = Priced(
        usd_per_hour=Decimal(3),
        used=PriceUsed(usd_per_hour=3, said="", instance_type=None, as_of=None, source=None),
        offer=None,
        table=None,
    )
    paid = JobCost(instance_count=1, usd_per_hour=Decimal(3), duration_ns=S)
    found = right_sizing([node()], verdict(), paid, told)
    assert "give --instance-type" in found.headline


def test_imported_shares_of_memory_are_of_the_machine_in_the_table() -> None:
    said = node(memory=None, held=None)
    shares = NodeUsage(
        node=said.node,
        cores=said.cores,
        cpu=said.cpu,
        memory_bytes=None,
        memory_ratio=0.5,
        gpus=said.gpus,
        gpu_memory_bytes={},
        gpu_memory_ratio=dict.fromkeys(said.gpus, 0.1),
    )
    best = advice([shares], "p3.8xlarge").choices[0]
    assert best.instance_type == "p3.2xlarge"
    assert best.memory_ratio == pytest.approx(0.5 * 244 / (61 * best.instance_count))
    assert best.gpu_memory_ratio == pytest.approx(0.1 * 4 / best.instance_count)


def test_evidence_names_the_least_and_the_most_used_gpu() -> None:
    said = node(gpus=2)
    uneven = replace(said, gpus={"0": level(0.334), "1": level(0.09)})
    assert advice([uneven]).evidence[0] == (
        "n0: the 95th percentile of CPU 24.4%, 2 GPUs 9.0% to 33.4%"
    )


def told(kind: str, usd: str) -> Priced:
    """A price that is not the published one."""
    used = PriceUsed(
        usd_per_hour=float(usd), said="as told", instance_type=kind, as_of=None, source=None
    )
    return replace(priced(kind), usd_per_hour=Decimal(usd), used=used)


def sized(count: int, usd: str, **use: float) -> RightSizing:
    """Advice for an hour of p3.8xlarge at a price that was told."""
    nodes = [node(f"n{number}", **use) for number in range(count)]  # type: ignore[arg-type]
    paid = JobCost(instance_count=count, usd_per_hour=Decimal(usd), duration_ns=3600 * S)
    return right_sizing(nodes, verdict(), paid, told("p3.8xlarge", usd))


def test_ones_own_machines_cost_what_was_told() -> None:
    """Three at $3.70, of which one would do: $11.10 less $3.70; a published p3.2xlarge costs $3.06,
    and two of them hold the GPUs' 12 x 13.5 %."""
    found = sized(3, "3.70")
    assert [(each.instance_count, each.instance_type, each.job_usd) for each in found.choices] == [
        (1, "p3.8xlarge", 3.70),
        (2, "p3.2xlarge", 6.12),
    ]
    best = found.choices[0]
    assert (best.said, best.saving_usd) == ("as told", pytest.approx(7.40))
    assert "1 x p3.8xlarge instead of 3 x p3.8xlarge would cost 66.7% less" in found.headline
    assert LISTED_PRICES in found.assumptions


def test_as_much_again_is_not_smaller() -> None:
    """One at $20, of which 4 x 60 % of the GPUs are used: one at the published $12.24, and four
    p3.2xlarge of the same size, cost less and are no smaller. Three are."""
    found = sized(1, "20", gpu=0.6)
    assert [(each.instance_count, each.instance_type) for each in found.choices] == [
        (3, "p3.2xlarge")
    ]
    full = sized(1, "20", gpu=0.69, held=15)  # five p3.2xlarge are needed for that memory
    assert full.choices == []
    assert "no smaller and cheaper choice" in full.headline


def test_at_the_published_price_nothing_is_taken_for_granted_of_it() -> None:
    assert LISTED_PRICES not in advice([node()], "p3.8xlarge").assumptions


def test_machines_of_unknown_size_are_not_recommended() -> None:
    def offer(kind: str, usd: int, **size: object) -> Offer:
        fields: dict[str, object] = {
            "type": kind, "usd_per_hour": Decimal(usd), "provider": "", "region": "",
            "as_of": None, "source": "", "sizes": "", "own": True, "gpu": "X", "gpu_count": 1,
            "gpu_memory_gib": 16, "vcpu_count": 32, "memory_gib": 64,
        }  # fmt: skip
        return Offer(**(fields | size))  # type: ignore[arg-type]

    table = PriceTable(
        [offer("now", 9), offer("small", 5, vcpu_count=16), offer("unknown", 1, vcpu_count=None)]
    )
    price = priced("now", table)
    paid = JobCost(instance_count=1, usd_per_hour=Decimal(9), duration_ns=3600 * S)
    found = right_sizing([node(gpus=1)], verdict(), paid, price)
    assert [each.instance_type for each in found.choices] == ["small"]


def test_use_is_that_of_training(tmp_path: Path) -> None:
    """Two minutes of preparation, in which the GPU rests, are not the machine's measure."""
    run = RunBuilder(tmp_path / "run", cores=8)
    rank = run.rank(workers=0).draw("annotation 120000")
    rank.draw("wait 10 | forward 400 | backward 500 | optimizer 90", 60)
    busy: Callable[[float], float] = lambda s: 0.1 if s < 120 else 0.8  # noqa: E731
    run.metric("gpu_busy_ratio", busy, device="0").metric("cpu_busy_ratio", busy)
    (found,) = node_usage(run.open())
    assert found.gpus["0"].mean == pytest.approx(0.8)
    assert found.cpu is not None
    assert found.cpu.p95 == pytest.approx(0.8)
    assert found.memory_bytes is None
    assert found.gpu_memory_bytes == {}
