"""Words that several widgets share, translated when they are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QCoreApplication, QLocale

if TYPE_CHECKING:
    from macapp.messages import Message


def translated(message: Message) -> str:
    """Return a message in the user's language."""
    return message.render(lambda text: QCoreApplication.translate("Message", text))


def choice(name: str) -> str:
    """Return what the user reads for a choice of a hyperparameter, a preset or a device."""
    translate = QCoreApplication.translate
    words = {
        "article": translate("words", "Article"),
        "faster": translate("words", "Faster"),
        "custom": translate("words", "Custom"),
        "mnist": translate("words", "MNIST digits"),
        "auto": translate("words", "Automatic"),
        "mps": translate("words", "Metal (GPU)"),
        "cuda": translate("words", "CUDA (GPU)"),
        "cpu": translate("words", "CPU"),
        "sgd": translate("words", "SGD"),
        "adam": translate("words", "Adam"),
        "adamw": translate("words", "AdamW"),
    }
    return words[name]


def number(value: float, decimals: int = 0) -> str:
    """Return a number with the separators of the user's country."""
    return QLocale().toString(float(value), "f", decimals)


def cores(count: int) -> str:
    """Return "1 core" or "8 cores"."""
    if count == 1:
        return QCoreApplication.translate("words", "1 core")
    return QCoreApplication.translate("words", "{count} cores").format(count=number(count))


def gigabytes(count: int) -> str:
    """Return a memory size in GB of 2^30 bytes, as macOS states the memory of a Mac."""
    amount = count / 2**30
    return number(amount, 0 if amount >= 10 or amount == int(amount) else 1)


def percent(value: float) -> str:
    """Return a share of 100."""
    return QCoreApplication.translate("words", "{percent} %").format(percent=number(value))


def memory(count: float) -> str:
    """Return an amount of memory with its unit."""
    if count < 2**30:
        return QCoreApplication.translate("words", "{size} MB").format(size=number(count / 2**20))
    return QCoreApplication.translate("words", "{size} GB").format(size=number(count / 2**30, 1))


def duration(seconds: float) -> str:
    """Return a time as a person says it: "41 s", "3 min 05 s", "2 h 10 min"."""
    translate = QCoreApplication.translate
    whole = round(max(0.0, seconds))
    if whole < 60:
        return translate("words", "{seconds} s").format(seconds=whole)
    if whole < 3600:
        text = translate("words", "{minutes} min {seconds} s")
        return text.format(minutes=whole // 60, seconds=f"{whole % 60:02d}")
    text = translate("words", "{hours} h {minutes} min")
    return text.format(hours=whole // 3600, minutes=f"{whole % 3600 // 60:02d}")
