"""What type of machine a cloud rents out here, as far as the machine says so itself.

Nothing is asked over the network: a profiler makes no calls unasked, and a metadata service may
be closed to a job, or count its calls. What is left is what the firmware says, and what a training
service tells its containers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

DMI = Path("/sys/class/dmi/id")
SERVICE_VARIABLE = "SM_CURRENT_INSTANCE_TYPE"
"""SageMaker's training containers have it: ml.p3.2xlarge."""
_EC2_TYPE = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+")


def read_instance_type(dmi: Path = DMI, environment: Mapping[str, str] = os.environ) -> str | None:
    """The provider's name of this type of machine; None where nothing says it.

    Amazon's Nitro machines have it as their product name. Its older ones, Google's and Azure's
    say only whose they are.
    """
    said = environment.get(SERVICE_VARIABLE, "").strip()
    if said:
        return said
    if _read(dmi / "sys_vendor") == "Amazon EC2":
        product = _read(dmi / "product_name")
        return product if _EC2_TYPE.fullmatch(product) else None
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
