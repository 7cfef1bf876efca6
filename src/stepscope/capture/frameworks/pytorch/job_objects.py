"""Reading of the job's objects without running their code.

A property, `__getattr__`, `__len__`, `__bool__` or `__fspath__` of a class of the job may raise,
take memory, download a file or hang, and in the thread of the job nothing can interrupt it. So what
such code would tell stays unknown.
"""

from __future__ import annotations

import types
from pathlib import PosixPath
from typing import Any

_FUNCTIONS = {
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    type,
}


def read_attribute(owner: object, name: str) -> Any:
    """Return an attribute that is stored in an object or its class; None if there is none, or if it
    is computed."""
    attributes = _attributes_of(owner)
    if name in attributes:
        return attributes[name]
    for base in type(owner).__mro__:
        if name in vars(base):
            value = vars(base)[name]
            return None if hasattr(type(value), "__get__") else value
    return None


def name_of(function: Any) -> str:
    """Return the qualified name of a function, the name of the class of any other callable."""
    return str(function.__qualname__) if type(function) in _FUNCTIONS else type(function).__name__


def read_path(path: object) -> str | None:
    """Return the path of a local file; None for objects of other classes, whose `__fspath__` may
    fetch a file."""
    if type(path) is PosixPath:
        return str(path)
    return path if type(path) is str else None


def _attributes_of(owner: object) -> dict[str, Any]:
    try:
        attributes = object.__getattribute__(owner, "__dict__")
    except AttributeError:
        return {}
    return attributes if type(attributes) is dict else {}
