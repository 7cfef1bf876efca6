"""Changes of the rules that are evaluated while a job runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from stepscope import errors, schema
from stepscope.rule_feed.check import make_registry
from stepscope.rules import Registry, installed_rules, read_assignments


def change_rules(
    selection: schema.RuleSelection,
    *,
    add: Sequence[str] = (),
    remove: Sequence[str] = (),
    assignments: Sequence[str] = (),
    fixed: Iterable[str] = (),
) -> schema.RuleSelection:
    """Add and remove rules, and set their parameters.

    Args:
        selection: the present rules.
        add: names, or `path.py:MyRule`.
        remove: names.
        assignments: `Name.parameter=value`.
        fixed: names of rules that must stay, because an action of the job depends on them.

    Raises:
        UsageError: a rule, parameter or value that does not exist, or a contradiction.
    """
    add = [_with_absolute_path(name) for name in add]
    registry, registered = make_registry(add)
    added = _insert(registry, add, registered)
    removed = _find_removed(registry, remove, selection.names)
    contradictory = removed & {_strip_path(name) for name in added}
    if contradictory:
        raise errors.UsageError(f"{_join(contradictory)} cannot be added and removed at once.")
    if removed & set(fixed):
        raise errors.UsageError(
            f"{_join(removed & set(fixed))} cannot be removed: the job was started with --stop-on "
            "or --fail-on for it."
        )
    changed = _change_names(selection, added, removed, registry)
    present = {_strip_path(name) for name in list_rules(changed)}
    settings = read_assignments(assignments, registry)
    for rule, values in settings.items():
        if rule not in present:
            raise errors.UsageError(f"{rule} is not evaluated; add it with --rule {rule}.")
        registry.get(rule)(**values)
    values_by_target = {
        f"{rule}.{parameter}": value
        for rule, values in settings.items()
        for parameter, value in values.items()
    }
    earlier = [
        text
        for text in selection.assignments
        if (target := text.partition("=")[0].strip()) not in values_by_target
        and target.partition(".")[0] not in removed
    ]
    new = [f"{target}={value}" for target, value in values_by_target.items()]
    return msgspec.structs.replace(changed, assignments=[*earlier, *new])


def _insert(registry: Registry, names: Sequence[str], registered: Sequence[str]) -> list[str]:
    """Return names as registered, except rules in files, which keep their path."""
    added: list[str] = []
    for name, registered_name in zip(names, registered, strict=True):
        rules = [rule.__name__ for rule in registry.select([registered_name])]
        added += [name] if ":" in name else rules
    return added


def _find_removed(registry: Registry, names: Iterable[str], present: Iterable[str]) -> set[str]:
    """Return the registered names of rules to remove; those in files need not be registered."""
    in_files = {_strip_path(name) for name in present if ":" in name}
    stripped = {_strip_path(name) for name in names}
    return (stripped & in_files) | {r.__name__ for r in registry.select(stripped - in_files)}


def _change_names(
    selection: schema.RuleSelection, added: Sequence[str], removed: set[str], registry: Registry
) -> schema.RuleSelection:
    """Add and remove names.

    Raises:
        UsageError: a rule to remove is not evaluated, or none would remain.
    """
    present = list_rules(selection)
    missing = removed - {_strip_path(name) for name in present}
    if missing:
        raise errors.UsageError(f"{_join(missing)} is not evaluated, and cannot be removed.")
    together = dict.fromkeys([*present, *added])
    names = [name for name in together if _strip_path(name) not in removed]
    if not names:
        raise errors.UsageError("No rule would remain; keep at least one.")
    if selection.names or any(":" in name for name in added):
        return msgspec.structs.replace(selection, names=names, without=[])
    without = [name for name in registry.names if name not in names]
    return msgspec.structs.replace(selection, without=without)


def list_rules(selection: schema.RuleSelection) -> list[str]:
    """List the rules that are evaluated: names, or `path.py:MyRule`."""
    return selection.names or [
        name for name in installed_rules().names if name not in selection.without
    ]


def name_rules(selection: schema.RuleSelection) -> list[str]:
    """Name the rules for `choose_rules`; nothing for all of them."""
    return list_rules(selection) if selection.without else selection.names


def _strip_path(name: str) -> str:
    """Return the name of a rule without the path of its file."""
    return name.rpartition(":")[2]


def _with_absolute_path(name: str) -> str:
    path, colon, rule = name.rpartition(":")
    return f"{Path(path).absolute()}:{rule}" if colon else name


def _join(names: Iterable[str]) -> str:
    return " and ".join(sorted(names))
