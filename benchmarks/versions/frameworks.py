"""Frameworks, their releases, and the environments in which these are installed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.versions import cells
from benchmarks.versions.cells import Cell

NEWEST = "newest"
_DIRECTORY = Path(__file__).parent


@dataclass(frozen=True)
class Release:
    """Release of a framework.

    Args:
        version: its version; `newest` for that of the package index.
        python: version of Python of its jobs.
        package: what is installed; `{}` is replaced by the version.
        companions: further packages.
    """

    version: str
    python: str = "3.11"
    package: str | None = None
    companions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Framework:
    """Framework.

    Args:
        packages: names of its distributions; the first is installed.
        script: its jobs.
        cells: jobs by name.
        releases: those to check.
        companions: distributions whose versions are noted, too.
        small_part: names of the jobs that use most of it, for a first look at a release.
    """

    packages: tuple[str, ...]
    script: Path
    cells: dict[str, Cell]
    releases: tuple[Release, ...]
    companions: tuple[str, ...] = ()
    small_part: tuple[str, ...] = ()


_OLD_NUMPY = ("numpy<2", "setuptools<81")
_OLD_TORCH = ("torch==2.2.2", *_OLD_NUMPY)
_OLD_JAX = ("jax==0.4.26", "jaxlib==0.4.26", "numpy<2", "scipy<1.13")
_TORCH = "torch==2.13.0"


def _torch(*versions: str, companions: tuple[str, ...]) -> tuple[Release, ...]:
    return tuple(Release(version, companions=companions) for version in versions)


FRAMEWORKS = {
    "PyTorch": Framework(
        ("torch",),
        _DIRECTORY / "jobs.py",
        cells.PYTORCH,
        (
            # torchrun of 1.13 does not start on Python 3.11.
            Release("1.13.1", "3.10", companions=_OLD_NUMPY),
            *_torch("2.0.1", "2.1.2", "2.2.2", companions=_OLD_NUMPY),
            *_torch(
                "2.4.1", "2.5.1", "2.6.0", "2.8.0", "2.10.0", "2.12.1", "2.13.0", "2.14.1", NEWEST,
                companions=("numpy", "setuptools<81"),
            ),
        ),
        small_part=(
            "loop with a DataLoader", "torch.compile", "window with stacks", "window later",
            "statistics of tensors",
        ),
    ),
    "Lightning": Framework(
        ("lightning", "pytorch-lightning"),
        _DIRECTORY / "lightning_jobs.py",
        cells.LIGHTNING,
        (
            Release("1.9.5", package="pytorch-lightning", companions=_OLD_TORCH),
            Release("2.0.9", companions=_OLD_TORCH),
            Release("2.4.0", companions=_OLD_TORCH),
            Release(NEWEST, companions=(_TORCH, "numpy")),
        ),
        ("torch",),
    ),
    "Transformers": Framework(
        ("transformers",),
        _DIRECTORY / "transformers_jobs.py",
        cells.TRANSFORMERS,
        (
            Release("4.30.2", companions=("torch==2.2.2", "accelerate==0.20.3", *_OLD_NUMPY)),
            Release("4.46.3", companions=("torch==2.2.2", "accelerate==1.1.1", *_OLD_NUMPY)),
            Release(NEWEST, companions=(_TORCH, "accelerate", "numpy")),
        ),
        ("torch", "accelerate"),
    ),
    "Accelerate": Framework(
        ("accelerate",),
        _DIRECTORY / "accelerate_jobs.py",
        cells.ACCELERATE,
        (
            Release("0.20.3", companions=_OLD_TORCH),
            Release("1.1.1", companions=_OLD_TORCH),
            Release(NEWEST, companions=(_TORCH, "numpy")),
        ),
        ("torch",),
    ),
    "Keras": Framework(
        ("keras",),
        _DIRECTORY / "keras_jobs.py",
        cells.KERAS,
        (
            Release("2.13.1", companions=("tensorflow-cpu==2.13.1",)),
            Release("3.0.5", companions=("tensorflow-cpu==2.16.2", _TORCH, *_OLD_JAX)),
            Release("3.6.0", companions=("tensorflow-cpu==2.18.1", "jax==0.4.38", _TORCH)),
            Release(NEWEST, companions=("tensorflow-cpu", "jax", _TORCH)),
        ),
        ("tensorflow-cpu", "jax", "torch"),
    ),
    "TensorFlow": Framework(
        ("tensorflow-cpu", "tensorflow"),
        _DIRECTORY / "tensorflow_jobs.py",
        cells.TENSORFLOW,
        (Release("2.12.1"), Release("2.16.2"), Release(NEWEST)),
        ("keras",),
    ),
    "JAX": Framework(
        ("jax",),
        _DIRECTORY / "jax_jobs.py",
        cells.JAX,
        (
            Release("0.4.20", companions=("jaxlib==0.4.20", "numpy<2", "scipy<1.13")),
            Release("0.5.3"),
            Release(NEWEST),
        ),
    ),
    "XGBoost": Framework(
        ("xgboost-cpu", "xgboost"),
        _DIRECTORY / "xgboost_jobs.py",
        cells.XGBOOST,
        (
            Release("1.7.6", package="xgboost", companions=("numpy<2",)),
            Release("2.1.4"),
            Release(NEWEST),
        ),
    ),
}  # fmt: skip
