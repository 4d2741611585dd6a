"""Which operators of a training step Metal lacks, known before the run begins.

One step is traced without data, and every operator looked up in the table from which PyTorch's
own dispatcher is generated: native_functions.yaml, which lies in every wheel.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from macapp.engine import networks, optimizers, training

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from macapp.protocol import TrainingConfig

# Shape (channels, height, width) of the pictures, which need not be loaded for this.
PICTURES: dict[str, tuple[int, int, int]] = {"mnist": (1, 28, 28)}
# Kernels that serve every device: they are made of other operators, which are looked up in turn
# or are in their place on MPS (convolution, copy_, sum, embedding).
COMPOSITE = {
    "CompositeImplicitAutograd",
    "CompositeExplicitAutograd",
    "CompositeExplicitAutogradNonFunctional",
}
# Written in Python and registered when torch.backends.mps is first used, so not in the table:
# (the first PyTorch with a kernel in the table, operators). Read in the wheels of 2.2 to 2.15.
PYTHON_KERNELS: tuple[tuple[tuple[int, int], frozenset[str]], ...] = (
    ((2, 13), frozenset({"native_group_norm", "native_group_norm_backward"})),
    ((2, 5), frozenset({"var_mean.correction"})),
)
# MPSFallback.mm: computed on the CPU without a warning, even where the table says otherwise.
SILENT_FALLBACKS = {"embedding_renorm_", "linalg_svd", "linalg_svd.U", "upsample_nearest3d.vec"}
# They have Metal kernels that the table does not name.
UNNAMED_KERNELS = {"_linalg_det", "_linalg_slogdet", "_linalg_solve_ex"}


class OperatorTable:
    """For each operator, the dispatch keys that have a kernel of their own."""

    def __init__(self, keys: Mapping[str, frozenset[str]], version: tuple[int, int]) -> None:
        """Hold the keys by operator name, as `read_yaml` returns them, of a PyTorch."""
        self._keys = keys
        self._version = version

    @property
    def names(self) -> list[str]:
        """All operators, in alphabetical order."""
        return sorted(self._keys)

    def runs_on_mps(self, name: str) -> bool:
        """Return whether an operator, such as "add.Tensor", runs on Metal; an unknown one not."""
        if name not in self._keys:
            return False
        keys = self._keys[name]
        if "MPS" in keys:
            return True
        if name in SILENT_FALLBACKS:
            return False
        if name.partition(".")[0] in UNNAMED_KERNELS:
            return True
        if any(self._version < since and name in names for since, names in PYTHON_KERNELS):
            return True
        return not keys or bool(keys & COMPOSITE)

    def missing_on_mps(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return those that do not run on Metal, in alphabetical order."""
        return tuple(sorted(name for name in names if not self.runs_on_mps(name)))


def read_yaml(text: str) -> dict[str, frozenset[str]]:
    """Return the dispatch keys of every operator in native_functions.yaml; never raises.

    The file is machine-written in shape: an entry begins with "- func: name(", has lines indented
    by two, and its dispatch table by four. An operator generated from another one is a composite.
    """
    keys: dict[str, set[str]] = {}
    delegates: dict[str, str] = {}
    name, in_dispatch = "", False
    for line in text.splitlines():
        if line.startswith("- func:"):
            name = line[len("- func:") :].partition("(")[0].strip()
            keys.setdefault(name, set())
            in_dispatch = False
        elif not name or not line.startswith("  ") or line.lstrip().startswith("#"):
            continue
        elif line.startswith("    "):
            if in_dispatch:
                keys[name].update(key.strip() for key in line.partition(":")[0].split(","))
        else:
            field, _, value = line.strip().partition(":")
            in_dispatch = field == "dispatch"
            if field == "structured_delegate":
                delegates[name] = value.strip()
            elif field == "autogen":
                for other in value.split(","):
                    keys.setdefault(other.strip(), {"CompositeExplicitAutograd"})
    for name, delegate in delegates.items():
        keys[name] |= keys.get(delegate, set())
    return {name: frozenset(found) for name, found in keys.items() if name}


@cache
def installed_table() -> OperatorTable | None:
    """Return the table of the PyTorch that is here; None if its file was left out."""
    spec = find_spec("torchgen")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(folder) / "packaged" / "ATen" / "native" / "native_functions.yaml"
        try:
            keys = read_yaml(path.read_text(encoding="utf-8", errors="replace"))
        except OSError:
            continue
        if keys:
            major, minor = torch.__version__.split(".")[:2]
            return OperatorTable(keys, (int(major), int(minor)))
    return None


class _Tracer(TorchDispatchMode):
    """Notes every operator that reaches the dispatcher."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: set[str] = set()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        namespace, _, name = func.name().partition("::")
        if namespace not in ("profiler", "prim"):
            self.names.add(name if namespace == "aten" else f"{namespace}::{name}")
        return func(*args, **(kwargs or {}))


def trace(config: TrainingConfig) -> frozenset[str]:
    """Return the operators of a run as configured: two steps, reading losses, a test batch.

    Two steps, since momentum acts from the second on. Traced on the CPU, without foreach, which
    MPS does not use.
    """
    network, optimizer, images, labels = sample(config, batch_size=2)
    with _Tracer() as tracer:
        losses = [training.training_step(network, optimizer, images, labels) for _ in range(2)]
        torch.stack(losses)
        network.eval()
        with torch.inference_mode():
            torch.cat([network(images)])
    return frozenset(tracer.names)


def sample(
    config: TrainingConfig, batch_size: int
) -> tuple[torch.nn.Module, torch.optim.Optimizer, torch.Tensor, torch.Tensor]:
    """Return a run's network, optimizer and one batch of empty pictures, on the CPU."""
    # Weights are drawn from torch's default generator, which belongs to a run in progress.
    with torch.random.fork_rng(devices=[]):
        network = networks.build(config.network, config.seed)
    optimizer = optimizers.plain(config, list(network.parameters()))
    images = torch.zeros((batch_size, *PICTURES[config.dataset]))
    return network, optimizer, images, torch.zeros(batch_size, dtype=torch.int64)
