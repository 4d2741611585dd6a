"""What pip would install on computers that are not here, asked of the package registry."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
pytestmark = pytest.mark.network


def resolve(platform: str, python: str, *, macos: str = "14.0", extra: str = "") -> dict[str, str]:
    """Return the version of each package for ``platform``."""
    command = [sys.executable, "-m", "uv", "pip", "compile", "pyproject.toml", "--quiet"]
    command += [
        "--no-header",
        "--no-annotate",
        "--python-platform",
        platform,
        "--python-version",
        python,
    ]
    command += [f"--extra={extra}"] if extra else []
    done = subprocess.run(
        command,
        cwd=PROJECT,
        capture_output=True,
        text=True,
        env=os.environ | {"MACOSX_DEPLOYMENT_TARGET": macos},
    )
    assert done.returncode == 0, done.stderr
    return dict(re.findall(r"^([\w-]+)==(\S+)", done.stdout, re.MULTILINE))


def version(text: str) -> tuple[int, int]:
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


@pytest.mark.parametrize(
    ("macos", "extra", "torch", "torchvision"),
    [
        ("12.3", "macos12", "2.4.1", "0.19.1"),
        ("13.0", "macos13", "2.8.0", "0.23.0"),
        ("14.0", "macos14", "2.14.1", "0.29.1"),
    ],
)
def test_each_macos_gets_the_torch_whose_metal_works_there(
    macos: str, extra: str, torch: str, torchvision: str
) -> None:
    found = resolve("aarch64-apple-darwin", "3.12", macos=macos, extra=extra)
    assert (found["torch"], found["torchvision"]) == (torch, torchvision)


@pytest.mark.parametrize("python", ["3.10", "3.12", "3.13"])
def test_a_new_mac(python: str) -> None:
    found = resolve("aarch64-apple-darwin", python)
    assert version(found["torch"]) >= (2, 14)
    assert (6, 8) <= version(found["pyside6-essentials"]) < (6, 12)
    assert not any("nvidia" in name for name in found)


@pytest.mark.parametrize("extra", ["", "macos13"])
@pytest.mark.parametrize(("macos", "python"), [("12.3", "3.10"), ("14.0", "3.12")])
def test_an_intel_mac(macos: str, python: str, extra: str) -> None:
    found = resolve("x86_64-apple-darwin", python, macos=macos, extra=extra)
    assert (found["torch"], found["torchvision"]) == ("2.2.2", "0.17.2")
    assert version(found["numpy"]) < (2, 0)


def test_linux() -> None:
    assert version(resolve("x86_64-manylinux_2_34", "3.11")["torch"]) >= (2, 14)
