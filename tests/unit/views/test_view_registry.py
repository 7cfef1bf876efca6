"""Registry of views: those of installed packages join the built-in ones."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import msgspec
import pytest

from stepscope.run import Run
from stepscope.views import DEFAULTS, View, ViewOptions, registry
from stepscope.views.options import RANGE_OPTIONS, Ranged


class ToyView(msgspec.Struct):
    busy_ns: int


def show_toy(_run: Run, _options: ViewOptions = DEFAULTS) -> ToyView:
    return ToyView(busy_ns=5)


def show_nothing(_run: Run, _options: ViewOptions = DEFAULTS):  # type: ignore[no-untyped-def]
    """Return nothing; the type of the payload is not annotated."""


TOY = View(lambda: show_toy)
UNTYPED = View(lambda: show_nothing)


def offer(monkeypatch: pytest.MonkeyPatch, **values: str) -> dict[str, View]:
    """Return the views with entry points of a package."""
    offers = [EntryPoint(name, value, registry.GROUP) for name, value in values.items()]
    monkeypatch.setattr(registry, "entry_points", lambda group: offers)
    return registry.installed_views()


def test_a_view_that_accepts_a_range_shows_it() -> None:
    for name, view in registry.BUILT_IN_VIEWS.items():
        if name.startswith("timeline-"):  # these restrict the tracks that they draw themselves
            continue
        is_ranged = issubclass(view.payload, Ranged)
        assert is_ranged == (set(RANGE_OPTIONS) <= set(view.uses)), (
            f"{view.payload.__name__} must be a subclass of Ranged if, and only if, {name} has "
            f"RANGE_OPTIONS in {registry.__file__}"
        )


def test_a_view_of_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    views = offer(monkeypatch, toy=f"{__name__}:TOY")
    assert list(views) == [*registry.BUILT_IN_VIEWS, "toy"]
    assert views["toy"] is TOY


def test_a_built_in_view_keeps_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    views = offer(monkeypatch, steps=f"{__name__}:TOY")
    assert views == registry.BUILT_IN_VIEWS


@pytest.mark.parametrize(
    "value", ["no.such.module:VIEW", f"{__name__}:ToyView", f"{__name__}:UNTYPED"]
)
def test_a_broken_package_costs_a_warning_only(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    with pytest.warns(UserWarning, match="The view broken cannot be loaded"):
        views = offer(monkeypatch, broken=value, toy=f"{__name__}:TOY")
    assert list(views) == [*registry.BUILT_IN_VIEWS, "toy"]
