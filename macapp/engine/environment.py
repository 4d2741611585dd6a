"""What PyTorch reads from the environment, decided by us before it is imported."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import MutableMapping

SETTINGS = {
    # An operator that Metal lacks runs on the CPU; every one that does is shown on the run. Read
    # while libtorch is loaded, and by std::stoi: "true" would end the process there.
    "PYTORCH_ENABLE_MPS_FALLBACK": "1",
    # Shares of what Metal recommends. The default of 1.7 is more than the memory of most Macs,
    # which then swap for minutes before an error comes. Both are needed: the low one defaults to
    # 1.4 and must not be above the high one.
    "PYTORCH_MPS_HIGH_WATERMARK_RATIO": "1.0",
    "PYTORCH_MPS_LOW_WATERMARK_RATIO": "0.8",
}
# Lower precision, and another matrix multiplication: results would no longer compare.
REMOVED = ("PYTORCH_MPS_FAST_MATH", "PYTORCH_MPS_PREFER_METAL")


def prepare(environment: MutableMapping[str, str] = os.environ) -> None:
    """Set what must be set; call it before torch is imported for the first time."""
    environment.update(SETTINGS)
    for name in REMOVED:
        environment.pop(name, None)
