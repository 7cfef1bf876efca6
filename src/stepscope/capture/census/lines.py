"""Lines that add to a holder, from the code that can run."""

from __future__ import annotations

from types import CodeType

from stepscope.capture.census.holders import Edge

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stepscope.capture.census.budget import Budget
    from stepscope.capture.census.holders import Name, Scope

_ADDING = frozenset(
    [
        "append",
        "appendleft",
        "extend",
        "insert",
        "add",
        "update",
        "setdefault",
        "put",
        "__setitem__",
    ]
)
"""Methods that add to a container."""


def find_adding_line(name: Name, scope: Scope, budget: Budget) -> int:
    """Find the line that adds to a holder, in the code that can run; 0 if there is not just one, or
    no time to read all of the code.

    It is a line that reads the name and calls a method that adds, assigns an item, or reads and
    assigns the name itself.
    """
    if name.kind == Edge.CACHE:
        return name.codes[0].co_firstlineno if name.codes else 0
    lines = {line for code in name.codes for line in _adding_lines(code, name.label, budget)}
    if not lines and name.kind in {Edge.ATTRIBUTE, Edge.CLASS}:
        positions = {
            (code.co_filename, line)
            for code in budget.limit(scope.codes(), "lines")
            for line in _adding_lines(code, name.label, budget)
        }
        if len(positions) == 1 and budget.allows("lines"):
            name.file, line = positions.pop()
            return line
    return lines.pop() if len(lines) == 1 and budget.allows("lines") else 0


def _adding_lines(code: CodeType, label: str, budget: Budget) -> set[int]:
    lines: set[int] = set()
    names = (*code.co_names, *code.co_varnames, *code.co_freevars, *code.co_cellvars)
    if label in names:
        lines |= _scan(code, label, budget)
    for constant in code.co_consts:
        if type(constant) is CodeType:
            lines |= _adding_lines(constant, label, budget)
    return lines


def _scan(code: CodeType, label: str, budget: Budget) -> set[int]:
    import dis

    starts = dict(dis.findlinestarts(code))
    lines: set[int] = set()
    line, reads = code.co_firstlineno, False
    for instruction in budget.limit(dis.get_instructions(code), "lines"):
        start = starts.get(instruction.offset)
        if start is not None and start != line:
            line, reads = start, False
        operation, value = instruction.opname, instruction.argval
        has_label = value == label if type(value) is str else (
            type(value) is tuple and label in value
        )  # fmt: skip
        if has_label and "LOAD" in operation:
            reads = True
        adds = operation in {"STORE_SUBSCR", "LIST_EXTEND", "SET_UPDATE"} or (
            operation in {"LOAD_METHOD", "LOAD_ATTR"} and value in _ADDING
        )
        if reads and (adds or (has_label and operation.startswith("STORE"))):
            lines.add(line)
    return lines
