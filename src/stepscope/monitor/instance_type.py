"""Cloud instance type of this machine, from local sources.

The network is not used: a profiler sends no requests without being told to, and a metadata service
may be closed to a job, or limit its requests. The remaining sources are the firmware, and the
environment of a training service's containers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

DMI = Path("/sys/class/dmi/id")
SERVICE_VARIABLE = "SM_CURRENT_INSTANCE_TYPE"
"""Variable in SageMaker's training containers, such as ml.p3.2xlarge."""
_EC2_TYPE = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+")


def read_instance_type(dmi: Path = DMI, environment: Mapping[str, str] = os.environ) -> str | None:
    """Read the cloud instance type; None if no source has it.

    It is the product name of Amazon's Nitro machines. Older ones, and those of Google and Azure,
    name only the provider.
    """
    instance_type = environment.get(SERVICE_VARIABLE, "").strip()
    if instance_type:
        return instance_type
    if _read(dmi / "sys_vendor") == "Amazon EC2":
        product = _read(dmi / "product_name")
        return product if _EC2_TYPE.fullmatch(product) else None
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
