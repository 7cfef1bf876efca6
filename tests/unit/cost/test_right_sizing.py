"""Right-sizing: recommendations, and the reasons for none."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest
from msgspec.structs import replace

from stepscope.cost.prices import HOUR_NS, JobCost, Offer, PriceTable, load_published_prices
from stepscope.cost.pricing import MachinePrice, PriceUsed
from stepscope.cost.right_sizing import (
    LISTED_PRICES,
    MAX_FILL_RATIO,
    MachineUsage,
    RightSizing,
    UsageLevel,
    measure_node_usage,
    recommend_size,
)
from stepscope.diagnosis.verdict import Suspect, Verdict
from stepscope.testing import RunBuilder

GIB = 1 << 30
S = 1_000_000_000


def make_level(value: float, *, mean: float | None = None, count: int = 1000) -> UsageLevel:
    return UsageLevel(mean=value if mean is None else mean, p95=value, peak=value, count=count)


def make_node(
    name: str = "n0",
    *,
    gpus: int = 4,
    gpu: float = 0.135,
    cpu: float | None = 0.244,
    cpu_mean: float = 0.1,
    cores: float = 32,
    memory: float | None = 20,
    gpu_memory: float | None = 1,
    count: int = 1000,
) -> MachineUsage:
    devices = [str(number) for number in range(gpus)]
    return MachineUsage(
        node=name,
        cores=cores,
        cpu=None if cpu is None else make_level(cpu, mean=cpu_mean, count=count),
        memory_bytes=None if memory is None else memory * GIB,
        memory_ratio=None,
        gpus={device: make_level(gpu, count=count) for device in devices},
        gpu_memory_bytes={} if gpu_memory is None else dict.fromkeys(devices, gpu_memory * GIB),
        gpu_memory_ratio={},
    )


def make_verdict(suspect: Suspect = "insufficient_evidence", share: float = 0.0) -> Verdict:
    lists = {name: [] for name in ("stages", "evidence", "ruled_out", "fixes")}
    return Verdict(
        suspect=suspect, cause="", share_ratio=share, confidence_ratio=1, headline="", **lists
    )


def make_price(
    offer: Offer | None, table: PriceTable | None, usd: str | None = None
) -> MachinePrice:
    """Make the price of an offer, or another one."""
    price = Decimal(usd) if usd is not None else offer.usd_per_hour
    used = PriceUsed(
        usd_per_hour=float(price),
        origin="set" if usd is not None else offer.origin,
        instance_type=offer and offer.type,
        as_of=None,
        source=None,
    )
    return MachinePrice(usd_per_hour=price, used=used, offer=offer, table=table)


def look_up_price(instance_type: str, usd: str | None = None) -> MachinePrice:
    table = load_published_prices()
    return make_price(table.find(instance_type), table, usd)


def recommend(
    nodes: list[MachineUsage],
    instance_type: str = "ml.p3.8xlarge",
    *,
    seconds: int = 503,
    verdict: Verdict | None = None,
) -> RightSizing:
    price = look_up_price(instance_type)
    cost = JobCost(
        instance_count=len(nodes), usd_per_hour=price.usd_per_hour, duration_ns=seconds * S
    )
    return recommend_size(nodes, make_verdict() if verdict is None else verdict, cost, price)


def test_the_published_case(tmp_path: Path) -> None:
    """Three p3.8xlarge with 95th percentiles of 13.5% (GPU) and 24.4% (CPU), replaced by its
    owners with two p3.2xlarge at 17.4% of the cost."""
    run = RunBuilder(tmp_path / "run", cores=32)
    for number in range(1, 4):
        name = f"algo-{number}"
        run.rank(number - 1, node=name).draw("annotation 503000")
        run.metric("cpu_busy_ratio", lambda s: 0.244 if s % 10 < 1 else 0.08, node=name)
        run.metric("memory_used_bytes", 20 * GIB, node=name)
        for gpu in "0123":
            run.metric("gpu_busy_ratio", 0.135, device=gpu, node=name)
            run.metric("gpu_memory_used_bytes", 1 * GIB, device=gpu, node=name)
    advice = recommend(measure_node_usage(run.open()))
    best = advice.choices[0]
    assert (best.instance_type, best.instance_count) == ("ml.p3.2xlarge", 2)
    assert best.gpu_p95_ratio == pytest.approx(12 * 0.135 / 2)
    assert best.cpu_mean_ratio == pytest.approx(96 * (0.1 * 0.244 + 0.9 * 0.08) / 16, rel=0.01)
    # 3 x 14.688 x 503 s and 2 x 3.825 x 503 s, each rounded to the cent.
    assert best.job_usd == float(round(Decimal(2) * Decimal("3.825") * 503 / 3600, 2)) == 1.07
    assert best.saving_usd == pytest.approx(6.16 - 1.07)
    assert f"{best.saving_ratio:.1%}" == "82.6%"
    assert best.caution is not None
    assert "23.4 cores" in best.caution  # 24.4% of 96; two of the recommended have 16
    assert advice.evidence[0] == ("algo-1: 95th percentile of utilization: CPU 24.4%, 4 GPUs 13.5%")
    assert "the bottleneck is not known" in advice.evidence[-1]
    assert "2 x ml.p3.2xlarge instead of 3 x ml.p3.8xlarge would cost 82.6% less" in advice.headline
    assert "2020-12-10" in best.price_origin
    # A single machine of the same type also holds the peaks, and is the second choice.
    second = advice.choices[1]
    assert (second.instance_type, second.instance_count) == ("ml.p3.8xlarge", 1)
    assert second.caution is None
    assert advice.assumptions


def test_recommended_machines_are_not_overfilled() -> None:
    for gpu in (0.01, 0.2, 0.45, 0.69):
        for gpu_memory in (0.1, 6, 14):
            nodes = [make_node(gpu=gpu, gpu_memory=gpu_memory)]
            for choice in recommend(nodes, "p3.8xlarge").choices:
                fill_ratios = (choice.gpu_p95_ratio, choice.cpu_mean_ratio, choice.memory_ratio)
                assert max(*fill_ratios, choice.gpu_memory_ratio) <= MAX_FILL_RATIO
                assert choice.saving_usd > 0


@pytest.mark.parametrize(
    ("changed", "count"),
    [
        ({}, 1),
        ({"gpu_memory": 15}, 5),  # 60 GiB on GPUs with 16 GiB, filled to 85%
        ({"memory": 200}, 4),  # GiB, on machines with 61
        ({"cpu_mean": 0.3, "cpu": 0.5}, 2),  # 9.6 cores, on machines with 8
        ({"gpu": 0.6}, 3),  # 2.4 GPUs
    ],
)
def test_resources_that_determine_the_count(changed: dict[str, float], count: int) -> None:
    """p3.2xlarge instead of one p3.8xlarge, which costs as much as four of them."""
    use = {"gpu_memory": 1.0, "memory": 20.0, "cpu_mean": 0.1, "cpu": 0.244, "gpu": 0.135} | changed
    advice = recommend([make_node(**use)], "p3.8xlarge")
    counts = {choice.instance_type: choice.instance_count for choice in advice.choices}
    assert counts == ({"p3.2xlarge": count} if count < 4 else {})


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ([make_node(gpus=0)], "no GPU was sampled"),
        ([], "no GPU was sampled"),
        ([make_node(cpu=None)], "the CPU was not sampled"),
        ([make_node(count=99)], "99 samples recorded, a 95th percentile needs 100"),
        (
            [make_node(), make_node("n1", gpu=0.7)],
            "a GPU of n1 is busy: its 95th percentile is 70.0%",
        ),
        ([make_node(cpu=0.7)], "the CPU of n0 is busy: its 95th percentile is 70.0%"),
        ([make_node(memory=None)], "the memory usage of the machines is not known"),
        ([make_node(gpu_memory=None)], "the memory usage of the GPUs is not known"),
    ],
)
def test_reasons_against_a_recommendation(nodes: list[MachineUsage], reason: str) -> None:
    advice = recommend(nodes)
    assert advice.choices == []
    assert advice.headline.startswith("No smaller machine recommended: ")
    assert reason in advice.headline


def test_the_smallest_machine_has_no_smaller_choice() -> None:
    advice = recommend([make_node(gpus=1, cores=8)], "p3.2xlarge")
    assert advice.choices == []
    location = "machines with V100 GPUs (AWS us-east-1)"
    assert f"no smaller and cheaper choice of {location}" in advice.headline


@pytest.mark.parametrize("suspect", ["data_pipeline", "communication", "framework_overhead"])
def test_a_bottleneck_is_fixed_first(suspect: Suspect) -> None:
    advice = recommend([make_node()], verdict=make_verdict(suspect, 0.44))
    assert advice.choices == []
    assert ", 44% of step time)" in advice.headline
    assert "fix it first" in advice.headline
    for suspect in ("model", "healthy"):
        advice = recommend([make_node()], verdict=make_verdict(suspect, 0.9))
        assert advice.choices
        assert not any("not known" in line for line in advice.evidence)


def test_unknown_machine_type() -> None:
    cost = JobCost(instance_count=1, usd_per_hour=Decimal(3), duration_ns=S)
    advice = recommend_size([make_node()], make_verdict(), cost, make_price(None, None, "3"))
    assert "set --instance-type" in advice.headline


def test_imported_memory_shares_are_scaled_by_the_price_table() -> None:
    node = make_node(memory=None, gpu_memory=None)
    gpu_memory_ratio = dict.fromkeys(node.gpus, 0.1)
    node = replace(node, memory_ratio=0.5, gpu_memory_ratio=gpu_memory_ratio)
    best = recommend([node], "p3.8xlarge").choices[0]
    assert best.instance_type == "p3.2xlarge"
    assert best.memory_ratio == pytest.approx(0.5 * 244 / (61 * best.instance_count))
    assert best.gpu_memory_ratio == pytest.approx(0.1 * 4 / best.instance_count)


def test_evidence_has_the_range_over_gpus() -> None:
    node = replace(make_node(), gpus={"0": make_level(0.334), "1": make_level(0.09)})
    assert recommend([node]).evidence[0] == (
        "n0: 95th percentile of utilization: CPU 24.4%, 2 GPUs 9.0% to 33.4%"
    )


def recommend_at(usd: str, count: int, **use: float) -> RightSizing:
    """Recommend machines for an hour of p3.8xlarge at a set price."""
    nodes = [make_node(f"n{number}", **use) for number in range(count)]
    cost = JobCost(instance_count=count, usd_per_hour=Decimal(usd), duration_ns=HOUR_NS)
    return recommend_size(nodes, make_verdict(), cost, look_up_price("p3.8xlarge", usd))


def test_the_current_type_costs_the_set_price() -> None:
    """Three at $3.70, of which one is enough: it saves $11.10 less $3.70. A published p3.2xlarge
    costs $3.06, and two of them hold the GPU usage of 12 x 13.5%."""
    advice = recommend_at("3.70", 3)
    assert [(c.instance_count, c.instance_type, c.job_usd) for c in advice.choices] == [
        (1, "p3.8xlarge", 3.70),
        (2, "p3.2xlarge", 6.12),
    ]
    best = advice.choices[0]
    assert (best.price_origin, best.saving_usd) == ("set", pytest.approx(7.40))
    assert "1 x p3.8xlarge instead of 3 x p3.8xlarge would cost 66.7% less" in advice.headline
    assert LISTED_PRICES in advice.assumptions


def test_machines_of_the_same_total_size_are_not_smaller() -> None:
    """One at $20 with GPU usage of 4 x 60%: one at the published $12.24, and four p3.2xlarge of the
    same total size, cost less and are not smaller. Three are."""
    advice = recommend_at("20", 1, gpu=0.6)
    assert [(c.instance_count, c.instance_type) for c in advice.choices] == [(3, "p3.2xlarge")]
    full = recommend_at("20", 1, gpu=0.69, gpu_memory=15)  # this memory needs five p3.2xlarge
    assert full.choices == []
    assert "no smaller and cheaper choice" in full.headline


def test_the_published_price_is_not_an_assumption() -> None:
    assert LISTED_PRICES not in recommend([make_node()], "p3.8xlarge").assumptions


def test_machines_of_unknown_size_are_not_recommended() -> None:
    def make_offer(instance_type: str, usd: int, **size: object) -> Offer:
        fields: dict[str, object] = {
            "type": instance_type, "usd_per_hour": Decimal(usd), "provider": "", "region": "",
            "as_of": None, "source": "", "sizes": "", "is_custom": True, "gpu": "X", "gpu_count": 1,
            "gpu_memory_gib": 16, "vcpu_count": 32, "memory_gib": 64,
        }  # fmt: skip
        return Offer(**(fields | size))

    offers = [make_offer("now", 9), make_offer("small", 5, vcpu_count=16)]
    offers.append(make_offer("unknown", 1, vcpu_count=None))
    table = PriceTable(offers)
    cost = JobCost(instance_count=1, usd_per_hour=Decimal(9), duration_ns=HOUR_NS)
    price = make_price(table.find("now"), table)
    advice = recommend_size([make_node(gpus=1)], make_verdict(), cost, price)
    assert [choice.instance_type for choice in advice.choices] == ["small"]


def test_usage_covers_the_training(tmp_path: Path) -> None:
    """Two minutes of preparation with an idle GPU do not count."""
    run = RunBuilder(tmp_path / "run", cores=8)
    rank = run.rank(workers=0).draw("annotation 120000")
    rank.draw("wait 10 | forward 400 | backward 500 | optimizer 90", 60)
    busy: Callable[[float], float] = lambda s: 0.1 if s < 120 else 0.8  # noqa: E731
    run.metric("gpu_busy_ratio", busy, device="0").metric("cpu_busy_ratio", busy)
    (usage,) = measure_node_usage(run.open())
    assert usage.gpus["0"].mean == pytest.approx(0.8)
    assert usage.cpu.p95 == pytest.approx(0.8)
    assert usage.memory_bytes is None
    assert usage.gpu_memory_bytes == {}
