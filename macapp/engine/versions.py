"""The versions that a result depends on."""

from __future__ import annotations

from importlib import metadata
from platform import python_version

import torch

from macapp import __version__
from macapp.protocol import Versions


def collect() -> Versions:
    """Return them; torchvision is not imported for it, which would take a second."""
    return Versions(
        metal_trainer=__version__,
        python=python_version(),
        torch=str(torch.__version__),  # a subclass of str, which msgspec refuses
        torchvision=_installed("torchvision"),
        numpy=_installed("numpy"),
    )


def _installed(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # a bundle without the package's metadata
        return ""
