"""A network's weights on disk."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from safetensors.torch import save

from macapp.messages import QT_TRANSLATE_NOOP, Failure, Message, UserError

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn


def save_weights(network: nn.Module | None, path: Path) -> None:
    """Write the network's weights to ``path`` as safetensors; a failure leaves no half file.

    Raises:
        UserError: there is no network yet, or the file cannot be written.
    """
    if network is None:
        raise UserError(
            Failure(
                Message(QT_TRANSLATE_NOOP("Message", "There is no trained network to save.")),
                Message(
                    QT_TRANSLATE_NOOP(
                        "Message",
                        "Train one first. A network is lost when the training engine restarts.",
                    )
                ),
            )
        )
    tensors = {
        name: tensor.detach().cpu().contiguous() for name, tensor in network.state_dict().items()
    }
    partial = path.with_name(path.name + ".part")
    try:
        try:
            with partial.open("wb") as file:
                file.write(save(tensors))
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(
            Failure(
                Message(
                    QT_TRANSLATE_NOOP("Message", "The network could not be saved as {path}."),
                    {"path": str(path)},
                ),
                Message(
                    QT_TRANSLATE_NOOP(
                        "Message", "Choose a folder that you may write to and that has room."
                    )
                ),
                str(error),
            )
        ) from error
