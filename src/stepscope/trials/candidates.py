"""Changes to try: those of the fixes of a verdict, or named by the user."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from stepscope import diagnosis, errors, schema
from stepscope.capture.trial import CHANGES, InjectableChange


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """Changes to try together."""

    changes: list[schema.Change]
    number: int | None = None
    """Number of the fix in the verdict, from 1; None for changes that the user named."""
    fix: diagnosis.Fix | None = None
    """Fix that recommends exactly these changes."""
    is_map_style: bool = True
    """False where the training data are those of an iterable dataset, or that is not known."""

    @property
    def prediction(self) -> diagnosis.Prediction | None:
        """Predicted step."""
        return None if self.fix is None else self.fix.prediction

    @property
    def by_name(self) -> dict[str, str]:
        """Values of the changes by name."""
        return {change.name: change.value for change in self.changes}

    @property
    def injectable(self) -> list[InjectableChange]:
        """The rows of the table of changes."""
        return [CHANGES[change.name] for change in self.changes]

    @property
    def title(self) -> str:
        """The changes in words."""
        return ", ".join(CHANGES[c.name].describe(c.value) for c in self.changes)

    @property
    def lines(self) -> list[str]:
        """Lines of the script that make the changes; arguments of one call are in one line."""
        lines: dict[str, str] = {}
        for change in self.changes:
            line = CHANGES[change.name].write_line(change.value)
            call, _, argument = line.partition("(..., ")
            earlier = lines.get(call)
            lines[call] = line if earlier is None else f"{earlier.removesuffix(')')}, {argument}"
        return list(lines.values())

    @property
    def alters_results(self) -> bool:
        """True if the job would compute something else."""
        return self.repeats_samples or any(c.results == "different" for c in self.injectable)

    @property
    def repeats_samples(self) -> bool:
        """True if each of several workers may yield all samples of an iterable dataset."""
        return not self.is_map_style and int(self.by_name.get("num_workers", 0)) > 1


def parse_changes(texts: Iterable[str]) -> list[schema.Change]:
    """Parse `NAME=VALUE` texts.

    Raises:
        UsageError: a name or a value is not known.
    """
    changes = []
    for text in texts:
        name, equals, value = text.partition("=")
        change = CHANGES.get(name.strip())
        if change is None or not equals:
            raise errors.UsageError(
                f"{text!r} is not a change that can be tried. NAME=VALUE with one of: "
                f"{', '.join(CHANGES)}."
            )
        usual = change.check(value.strip())
        if usual is None:
            raise errors.UsageError(f"{name} takes {change.accepted}, not {value!r}.")
        changes.append(schema.Change(name=change.name, value=usual))
    return changes


def choose_candidates(
    verdict: diagnosis.Verdict,
    *,
    fix: str | None = None,
    changes: Sequence[schema.Change] = (),
    allow_different_results: bool = False,
    is_map_style: bool = True,
) -> list[Candidate]:
    """Choose what to try.

    Args:
        fix: number of a fix, `all`, or None for the first fix that can be tried.
        changes: changes that the user named; tried together, instead of a fix.
        allow_different_results: choose changes with which the job computes something else, too.
        is_map_style: False where the training data are those of an iterable dataset, or that is
            not known.

    Raises:
        UsageError: there is no such fix, or it cannot be tried.
    """
    candidates = [
        replace(candidate, is_map_style=is_map_style)
        for candidate in _list_candidates(verdict, fix=fix, changes=changes)
    ]
    harmless = [candidate for candidate in candidates if not candidate.alters_results]
    if not harmless and not allow_different_results:
        reason = (
            "each worker yields all samples, unless the iterable dataset divides them"
            if candidates[0].repeats_samples
            else "the job computes something else"
        )
        raise errors.UsageError(
            f"With {candidates[0].title} {reason}. Pass --allow-different-results to try it."
        )
    selection = candidates if allow_different_results else harmless
    return selection if fix == "all" else selection[:1]


def _list_candidates(
    verdict: diagnosis.Verdict, *, fix: str | None, changes: Sequence[schema.Change]
) -> list[Candidate]:
    """List what the options select; at least one candidate."""
    fixes = list(enumerate(verdict.fixes, 1))
    if changes:
        values = {change.name: change.value for change in changes}
        for number, recommended in fixes:
            if {c.name: c.value for c in recommended.changes} == values:
                return [Candidate(changes=list(changes), number=number, fix=recommended)]
        return [Candidate(changes=list(changes))]
    candidates = [
        Candidate(changes=recommended.changes, number=number, fix=recommended)
        for number, recommended in fixes
        if recommended.changes
    ]
    if fix not in {None, "all"}:
        return [_find_fix(verdict, candidates, str(fix))]
    if not candidates:
        raise errors.UsageError(
            "No fix of the verdict can be tried without editing the script. Name a change, such "
            f"as --change num_workers=2; known are {', '.join(CHANGES)}."
        )
    return candidates


def _find_fix(verdict: diagnosis.Verdict, candidates: list[Candidate], text: str) -> Candidate:
    count = len(verdict.fixes)
    number = int(text) if text.isdecimal() else 0
    if not 1 <= number <= count:
        raise errors.UsageError(
            f"There is no fix {text}; the verdict has {count}."
            if count
            else "The verdict recommends no fix. Name a change, such as --change num_workers=2."
        )
    candidate = next((c for c in candidates if c.number == number), None)
    if candidate is None:
        options = ", ".join(f"--fix {c.number}" for c in candidates)
        raise errors.UsageError(
            f"Fix {number}, “{verdict.fixes[number - 1].title}”, needs an edit of the script and "
            f"cannot be tried. {f'These can: {options}.' if options else 'No fix can.'}"
        )
    return candidate
