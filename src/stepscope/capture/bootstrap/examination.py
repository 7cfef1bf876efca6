"""Answers of a job's interpreter about what is recorded of its jobs.

`stepscope doctor -- python` passes this text to the interpreter with its option `-c`, a mark and
modules of frameworks. It needs nothing but Python, because it also answers where stepscope cannot
be imported. Each answer is a line with the mark, and a name and a value in JSON; one that an import
prevents by ending the process is missing.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def main(modules: list[str]) -> None:
    tell("python", [sys.version.split()[0], sys.executable])
    flags = {"-S": sys.flags.no_site, "-I": sys.flags.isolated, "-E": sys.flags.ignore_environment}
    package = os.environ.get("STEPSCOPE_PACKAGE", "")
    tell(
        "hook",
        {
            "runs": "stepscope.capture.bootstrap" in sys.modules,
            "flags": [flag for flag, is_set in flags.items() if is_set],
            "sees_package": os.path.isdir(package) if package else None,
            "python_path": os.environ.get("PYTHONPATH", ""),
        },
    )
    for names in modules:
        module, adapted = names.split(",")
        if importlib.util.find_spec(module) is not None:
            tell("import", module)
            tell("framework", [module, *import_framework(module, adapted)])
            tell("losses", [module, list_losses(module)])


def import_framework(module: str, adapted: str) -> tuple[str, str]:
    """Return the version of a framework and an empty text, or the reason why it has none.

    Args:
        adapted: the module of it whose import wakes its adapter.
    """
    try:
        version = str(getattr(importlib.import_module(module), "__version__", ""))
        importlib.import_module(adapted)
        return version, ""
    except BaseException as error:  # noqa: BLE001 - it may raise anything, and must end nothing
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return "", ": ".join([type(error).__name__, *lines[:1]])


def list_losses(module: str) -> list[str]:
    """Return what is not recorded of a framework, if stepscope can be imported."""
    try:
        from stepscope.capture.frameworks import internals, tables  # noqa: F401 - tables register
    except ImportError:
        return []
    loaded = [t for t in internals.Internals.instances if t.package in sys.modules]
    of_module = [table for table in loaded if table.package.split(".")[0] == module]
    return [sentence for table in of_module for sentence in table.list_losses()]


def tell(name: str, value: Any) -> None:
    """Write an answer at once: the next import may end the process."""
    sys.stdout.flush()
    os.write(1, f"\n{sys.argv[1]}{json.dumps([name, value])}\n".encode())


if __name__ == "__main__":
    main(sys.argv[2:])
