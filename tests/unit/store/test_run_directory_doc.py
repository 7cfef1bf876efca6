"""docs/run-directory.md explains every manifest, and its queries run as printed."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import msgspec
import pytest

from stepscope.schema import (
    ConfigurationDecision,
    ConfigurationRequest,
    Delivery,
    Finding,
    Incarnation,
    JobConfiguration,
    JobStatus,
    LauncherInfo,
    Lease,
    NodeInfo,
    ProcessInfo,
    RankClaim,
    RuleRecord,
    RuleSelection,
    RunInfo,
)
from stepscope.store import RunWriter
from tests.support.store_rows import spans

DOC = Path(__file__).parents[3] / "docs" / "run-directory.md"
MANIFESTS = [
    *(RunInfo, NodeInfo, JobStatus, ProcessInfo, RuleRecord, Finding, Delivery),
    *(LauncherInfo, Incarnation, RankClaim, Lease),
    *(ConfigurationRequest, ConfigurationDecision, JobConfiguration, RuleSelection),
]


@pytest.mark.parametrize("manifest", MANIFESTS)
def test_every_field_of_a_manifest_is_explained(manifest: type[msgspec.Struct]) -> None:
    text = DOC.read_text()
    missing = [name for name in manifest.__struct_encode_fields__ if f"`{name}`" not in text]
    assert not missing, f"{DOC.name} does not explain {missing} of {manifest.__name__}"


def test_queries_run_as_printed(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RunWriter(run, "n0") as writer:
        writer.append("spans", spans(range(9)))
    monkeypatch.chdir(run.parent)
    run.rename("RUN")
    queries = re.findall(r"```sql\n(.+?)```", DOC.read_text(), flags=re.DOTALL)
    assert queries
    for query in queries:
        assert duckdb.sql(query).fetchall()
