"""What the app remembers between two starts. Nothing here can stop it from starting."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import msgspec
from PySide6.QtCore import QByteArray, QSettings

from macapp.protocol import TrainingConfig
from macapp.ui.theme import Appearance

if TYPE_CHECKING:
    from pathlib import Path


class Preferences:
    """Settings in an ini file. A value that cannot be read or is no longer valid is the default."""

    def __init__(self, path: Path) -> None:
        """Read ``path``, if it is there."""
        self.path = path
        self._settings = QSettings(str(path), QSettings.Format.IniFormat)

    @property
    def config(self) -> TrainingConfig:
        """The settings of the last run."""
        try:
            text = str(self._settings.value("config", ""))
            config = msgspec.json.decode(text, type=TrainingConfig)
        except msgspec.DecodeError:
            return TrainingConfig()
        return TrainingConfig() if config.problems() else config

    @config.setter
    def config(self, config: TrainingConfig) -> None:
        self._settings.setValue("config", msgspec.json.encode(config).decode())

    @property
    def appearance(self) -> Appearance:
        """Light, dark, or as the system is."""
        value = self._settings.value("appearance")
        return value if value in get_args(Appearance) else "automatic"

    @appearance.setter
    def appearance(self, appearance: Appearance) -> None:
        self._settings.setValue("appearance", appearance)

    @property
    def geometry(self) -> QByteArray:
        """Where the window was; empty at first."""
        value = self._settings.value("geometry")
        return value if isinstance(value, QByteArray) else QByteArray()

    @geometry.setter
    def geometry(self, geometry: QByteArray) -> None:
        self._settings.setValue("geometry", geometry)

    def save(self) -> bool:
        """Write the file; return whether that worked."""
        self._settings.sync()
        return self._settings.status() == QSettings.Status.NoError
