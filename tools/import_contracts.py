"""A contract for import-linter: packages import each other through their `__init__`."""

from __future__ import annotations

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class FrontsContract(Contract):
    """No module imports a module from inside another package, only packages.

    A package is a direct child of the root package that has modules. What others may use of it is
    what its `__init__`, or that of a package inside it, offers.

    Options:
        root: the root package.
        more_fronts: modules inside a package that others may import as well.
    """

    type_name = "fronts"

    root = fields.StringField()
    more_fronts = fields.ListField(subfield=fields.StringField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Find imports that go past the front of another package."""
        modules = {name for name in graph.modules if name.startswith(f"{self.root}.")}
        packages = {name for name in graph.find_children(self.root) if graph.find_children(name)}
        fronts = {name for name in modules if graph.find_children(name)}
        fronts |= set(self.more_fronts or ())
        broken = sorted(
            (importer, imported)
            for importer in modules
            for imported in graph.find_modules_directly_imported_by(importer)
            if _package_of(imported) in packages
            and _package_of(imported) != _package_of(importer)
            and imported not in fronts
        )
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print the imports and the way to mend them."""
        for importer, imported in check.metadata["broken"]:
            front = imported.rpartition(".")[0]
            output.print_error(f"{importer} imports {imported}: import the name from {front}.")


def _package_of(module: str) -> str:
    return ".".join(module.split(".")[:2])
