"""Real traces survive import, export and another import.

The files are not part of the project; without them, these tests are skipped.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.chrome_files import (
    ChromeFile,
    comparable_tables,
    differences,
    export,
    import_into,
)

SHARED = Path(__file__).parents[3] / "shared"
_LARGE = pytest.mark.extended(
    "has as much of each kind as a smaller one, and five times the events"
)
FILES = (
    "samples/ddp0.json",
    "samples/ddp1.json",
    "samples/torch213_cpu_all.json",
    "traces/alexnet_critical_path.a100.json.gz",
    "traces/bert_small.h100.json.gz",
    "traces/cpu_only.json.gz",
    pytest.param("traces/ddp_2ranks_memory.v100.json.gz", marks=_LARGE),
    pytest.param("traces/ddp_2ranks_nccl.a100.json.gz", marks=_LARGE),
    "traces/event_sync_multi_stream.a100.json.gz",
    "traces/minitoy.mi250.json.gz",
    "traces/qwen_0_5b.h100.json.gz",
    pytest.param("traces/resnet50_num_workers_0.v100.json.gz", marks=_LARGE),
    pytest.param("traces/resnet50_num_workers_4.v100.json.gz", marks=_LARGE),
    pytest.param("traces/resnet_checkpointing_8ranks.mi300x.json.gz", marks=_LARGE),
    "traces/sampled_128ranks_rank0.json.gz",
    "traces/sampled_128ranks_rank1.json.gz",
    "traces/torch_compile_triton.mi300x.json.gz",
    "traces/triton.a100.json.gz",
)


@pytest.mark.parametrize("name", FILES)
def test_nothing_is_lost(name: str, tmp_path: Path) -> None:
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"{path} is not here")
    run = import_into(tmp_path / "run", path)
    written = export(run, tmp_path / "exported" / path.name, "--json")
    original, exported = ChromeFile(path), ChromeFile(written)

    changes = list(differences(original, exported))
    assert not changes, f"{len(changes)} differences: {changes[:5]}"
    assert exported.launch_arrows() == original.expected_launch_arrows()
    assert exported.other_arrows() == original.other_arrows()
    assert exported.track_names() == original.track_names()
    stated = {key: value for key, value in original.header.items() if key not in _BASES}
    assert {key: exported.header[key] for key in stated} == stated

    again = import_into(tmp_path / "again", written)
    before, after = comparable_tables(run), comparable_tables(again)
    for table, rows in before.items():
        assert after[table] == rows, table


_BASES = ("baseTimeNanoseconds",)
"""Differs where the file has none, or one so far back that doubles lose nanoseconds."""
