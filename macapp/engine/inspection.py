"""What a run would meet, told before it begins: missing operators, memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from macapp.engine import coverage, memory, training
from macapp.protocol import Inspection

if TYPE_CHECKING:
    from macapp.engine.devices import Device
    from macapp.protocol import TrainingConfig


def inspect(config: TrainingConfig, device: Device) -> Inspection:
    """Trace a step of the run and estimate its memory; trains nothing, takes some 0.1 s."""
    needs, free = memory_needs(config), device.free_bytes()
    fitting = config.batch_size
    while fitting and needs.of(fitting) > free:
        fitting //= 2
    table = coverage.installed_table()
    on_cpu: tuple[str, ...] = ()
    if device.kind == "mps" and table is not None:
        on_cpu = table.missing_on_mps(coverage.trace(config))
    return Inspection(
        config=config,
        device=device.kind,
        on_cpu=on_cpu,
        is_complete=device.kind != "mps" or table is not None,
        needed_bytes=needs.of(config.batch_size),
        free_bytes=free,
        fitting_batch_size=fitting,
    )


class MemoryNeeds(NamedTuple):
    """The peak of a training step, in bytes: it grows in proportion to the batch."""

    fixed: int
    per_picture: int

    def of(self, batch_size: int) -> int:
        """Return the bytes for a batch."""
        return self.fixed + self.per_picture * batch_size


def memory_needs(config: TrainingConfig) -> MemoryNeeds:
    """Measure steps with 2 and with 4 pictures, and take what lies between as a straight line."""
    two, four = (
        memory.step_bytes(*coverage.sample(config, size), training.training_step) for size in (2, 4)
    )
    per_picture = (four - two) // 2
    return MemoryNeeds(two - 2 * per_picture, per_picture)
