"""Numbers that a script logs through Accelerate."""

from __future__ import annotations

from typing import Any

CODE = """
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
accelerator.log({"loss": 0.5, "note": "text", "flag": True})
accelerator.log(values={"loss": 0.25}, step=1)
"""


def test_logged_numbers_are_scalars(spool: Any) -> None:
    """Positional and by keyword; what is no number is left out."""
    spool.run_torch(CODE)
    records = [record for record in spool.drain().records if record.table == "scalars"]
    assert [(record.name, record.value) for record in records] == [("loss", 0.5), ("loss", 0.25)]
