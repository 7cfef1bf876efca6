"""Instance type from local sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope.monitor.host import node_info, read_instance_type


@pytest.mark.parametrize(
    ("vendor", "product", "expected"),
    [
        ("Amazon EC2", "p4d.24xlarge\n", "p4d.24xlarge"),
        ("Amazon EC2", "c7i-flex.8xlarge", "c7i-flex.8xlarge"),
        ("Amazon EC2", "u-6tb1.112xlarge", "u-6tb1.112xlarge"),
        ("Amazon EC2", "HVM domU", None),
        ("Xen", "HVM domU", None),  # Amazon's machines before Nitro: p3.2xlarge
        ("Google", "Google Compute Engine", None),
        ("Microsoft Corporation", "Virtual Machine", None),
        ("Dell Inc.", "PowerEdge.R740", None),
    ],
)
def test_firmware(tmp_path: Path, vendor: str, product: str, expected: str | None) -> None:
    (tmp_path / "sys_vendor").write_text(f"{vendor}\n")
    (tmp_path / "product_name").write_text(product)
    assert read_instance_type(tmp_path, {}) == expected


def test_environment_of_a_training_service_and_no_firmware_tables(tmp_path: Path) -> None:
    environment = {"SM_CURRENT_INSTANCE_TYPE": "ml.p3.8xlarge"}
    assert read_instance_type(tmp_path, environment) == "ml.p3.8xlarge"
    assert read_instance_type(tmp_path, {"SM_CURRENT_INSTANCE_TYPE": " "}) is None
    assert read_instance_type(tmp_path / "none", {}) is None


def test_it_is_recorded_with_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SM_CURRENT_INSTANCE_TYPE", "ml.g5.xlarge")
    # The default argument is the environment itself, not a copy of it.
    assert node_info(sample_interval_ns=1, spool="").instance_type == "ml.g5.xlarge"
