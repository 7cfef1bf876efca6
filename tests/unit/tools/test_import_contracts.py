"""Every import contract of pyproject.toml is kept, and breaks on an import that it forbids.

The graph of imports is built once; each case adds one import to a copy of it.
"""

from __future__ import annotations

import copy
from pathlib import Path

import grimp
import pytest
from importlinter import configuration
from importlinter.application.use_cases import _register_contract_types, read_user_options
from importlinter.domain.contract import registry

configuration.configure()
OPTIONS = read_user_options(str(Path(__file__).parents[3] / "pyproject.toml"))
_register_contract_types(OPTIONS)
CONTRACTS = {contract["id"]: contract for contract in OPTIONS.contracts_options}

FORBIDDEN = {
    "fronts": [("stepscope.cli.commands.show", "stepscope.run.model.traces")],
    "acyclic": [("stepscope.run.model.clock", "stepscope.run.model.run")],
    "layers": [
        ("stepscope.run.model.run", "stepscope.diagnosis"),
        ("stepscope.diagnosis.verdict", "stepscope.timeline"),
        ("stepscope.cost.prices", "stepscope.comparison"),
        ("stepscope.store.reader", "stepscope.spool"),
    ],
    "pure-analysis": [("stepscope.analysis.steps.spans", "stepscope.store")],
    "recorded-only": [("stepscope.run.model.run", "stepscope.monitor")],
    "read-through-run": [
        ("stepscope.server.tasks", "stepscope.store"),
        ("stepscope.report.html", "stepscope.monitor"),
    ],
    "light-capture": [("stepscope.capture.marks", "numpy"), ("stepscope.spool.log", "msgspec")],
    "views-and-access-without-numpy": [
        ("stepscope.views.steps.steps", "numpy"),
        ("stepscope.access.tables", "numpy"),
    ],
    "cli-through-views": [("stepscope.cli.commands.show", "stepscope.analysis")],
}
"""An import that each contract forbids, by the contract's id: a new contract needs a row here."""


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("stepscope", include_external_packages=True)


def is_kept(contract_id: str, graph: grimp.ImportGraph) -> bool:
    options = CONTRACTS[contract_id]
    contract = registry.get_contract_class(options["type"])(
        name=options["name"], session_options=OPTIONS.session_options, contract_options=options
    )
    return contract.check(copy.deepcopy(graph), verbose=False).kept


def test_every_contract_has_a_case() -> None:
    assert set(FORBIDDEN) == set(CONTRACTS), "add an import that the new contract forbids"


@pytest.mark.parametrize("contract_id", CONTRACTS)
def test_a_contract_is_kept(contract_id: str, graph: grimp.ImportGraph) -> None:
    assert is_kept(contract_id, graph)


@pytest.mark.parametrize(
    ("contract_id", "importer", "imported"),
    [(contract, *case) for contract, cases in FORBIDDEN.items() for case in cases],
)
def test_a_contract_breaks(
    contract_id: str, importer: str, imported: str, graph: grimp.ImportGraph
) -> None:
    changed = copy.deepcopy(graph)
    changed.add_module(imported, is_squashed="." not in imported)
    changed.add_import(importer=importer, imported=imported)
    assert not is_kept(contract_id, changed)
