"""Tables of the operators that run on the Metal of older PyTorches, made from their wheels.

``python -m tests.operator_tables WHEEL...`` writes tests/engine/operator_tables/VERSION.txt for
each: a line an operator, "+" before one that runs on Metal, "-" before one that does not. A wheel
is had by ``pip download --no-deps --only-binary=:all: --python-version 3.11 --platform
macosx_11_0_arm64 torch==2.8.0``.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

FOLDER = Path(__file__).parent / "engine" / "operator_tables"
YAML = "torchgen/packaged/ATen/native/native_functions.yaml"


def read_names(path: Path) -> dict[str, bool]:
    """Return for each operator whether it runs on Metal."""
    return {line[1:]: line[0] == "+" for line in path.read_text().splitlines()}


def write(wheel: Path) -> None:
    """Write the table of a wheel."""
    from macapp.engine.coverage import OperatorTable, read_yaml

    version = wheel.name.split("-")[1]
    major, minor = version.split(".")[:2]
    with zipfile.ZipFile(wheel) as archive:
        keys = read_yaml(archive.read(YAML).decode())
    table = OperatorTable(keys, (int(major), int(minor)))
    lines = [f"{'+' if table.runs_on_mps(name) else '-'}{name}\n" for name in table.names]
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{version}.txt").write_text("".join(lines))
    print(version, len(lines), sum(line[0] == "+" for line in lines))


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        write(Path(argument))
