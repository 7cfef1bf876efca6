"""stepscope says what a training job is waiting for."""

from stepscope._version import __version__

__all__ = ["__version__"]
