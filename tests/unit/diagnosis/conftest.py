"""Runs to draw."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepscope.testing import RunBuilder

GET = "fetch > Rows.__getitem__"
LOOP = "main > train"
CODE = {
    "read": f"{GET} > fetch_row > get@requests/api.py",
    "decode": f"{GET} > read_table@pyarrow/parquet/core.py",
    "augment": f"{GET} > Compose.__call__ > Mask.__call__",
    "tokenise": f"{GET} > encode@tiktoken/core.py",
    "lookup": f"{GET} > lookup",
    "collate": "fetch > collate_rows",
    "sync": f"{LOOP} # total += loss.item()",
    "log": f"{LOOP} # print(step, total)",
    "python": f"{LOOP} > schedule # rate = base / step",
    "batch": f"{LOOP} > get_batch # x = data[i : i + n]",
    "model": f"{LOOP} > Module.__call__@torch/nn/modules/module.py",
}


@pytest.fixture
def new_run(tmp_path: Path) -> Callable[..., RunBuilder]:
    def make(**options: Any) -> RunBuilder:
        return RunBuilder(tmp_path / "run", code=CODE, **options)

    return make
