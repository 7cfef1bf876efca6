"""Map of imports: the packages that each package imports, read from the source."""

from __future__ import annotations

import re
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "stepscope"
_IMPORT = re.compile(r"^ *from stepscope(?:\.(\w+)[\w.]*)? import (\([^)]*\)|[^\n]*)", re.MULTILINE)


def find_imports() -> dict[str, set[str]]:
    """Return the packages that each package imports, without itself."""
    packages = sorted(path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists())
    imports = {}
    for package in packages:
        names: set[str] = set()
        for path in (PACKAGE / package).rglob("*.py"):
            for module, items in _IMPORT.findall(path.read_text()):
                names |= {module} if module else set(re.findall(r"\w+", items))
        imports[package] = names & set(packages) - {package}
    return imports


def draw_imports() -> str:
    """Return a table with a row for each package, those that import others first."""
    imports = find_imports()
    lines = ["| package | imports |", "|---|---|"]
    for name in sort_by_layers(imports):
        lines.append(f"| `{name}` | {', '.join(f'`{item}`' for item in sorted(imports[name]))} |")
    return "\n".join(lines)


def sort_by_layers(imports: dict[str, set[str]]) -> list[str]:
    """Sort packages so that each stands above those that it imports.

    Raises:
        RecursionError: packages import each other in a circle.
    """
    heights: dict[str, int] = {}

    def measure(name: str) -> int:
        if name not in heights:
            heights[name] = 1 + max(map(measure, imports[name]), default=0)
        return heights[name]

    return sorted(imports, key=lambda name: (-measure(name), name))
