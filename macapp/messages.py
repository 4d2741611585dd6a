"""Sentences for the user, written where they arise and translated where they are shown.

The engine and the command line know no Qt, so a sentence travels as its English text with the
values that belong in it; the window looks the text up in its translation, the command line
prints it as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

Value: TypeAlias = "str | int | float | Message"
Topic: TypeAlias = Literal["", "unavailable", "memory", "operators", "crash", "garbage", "numbers"]
"""A chapter of the Help page; "" is none."""


class Message(msgspec.Struct, frozen=True):
    """A sentence with named places, for example ``Message("{count} pictures", {"count": 3})``.

    A value may be a message itself; it is translated too. Write the text as
    ``QT_TRANSLATE_NOOP("Message", "…")``, so that ``lupdate`` finds it.
    """

    text: str
    values: dict[str, Value] = {}

    def render(self, translate: Callable[[str], str] = str) -> str:
        """Return the sentence, its text passed through ``translate`` before it is filled in."""
        values = {
            name: value.render(translate) if isinstance(value, Message) else value
            for name, value in self.values.items()
        }
        return translate(self.text).format(**values)

    def __str__(self) -> str:
        """Return the English sentence."""
        return self.render()


def QT_TRANSLATE_NOOP(context: str, text: str) -> str:
    """Mark ``text`` for Qt's ``lupdate``, which searches for this very name; return it as it is."""
    del context
    return text


class Failure(msgspec.Struct, frozen=True):
    """Something that went wrong, as the user reads it."""

    what: Message
    """What happened, in one sentence."""
    remedy: Message
    """What to do now."""
    details: str = ""
    """For *Copy diagnostics*: a traceback, a signal, lines from stderr. Never shown unfolded."""
    topic: Topic = ""
    """The chapter of the Help page that explains it."""
    blames_device: bool = False
    """Whether the same run may well succeed on another device."""


class UserError(Exception):
    """An error whose cause and remedy are known; it carries the `Failure` to show."""

    def __init__(self, failure: Failure) -> None:
        """Keep the failure; its first sentence is the exception's text."""
        super().__init__(str(failure.what))
        self.failure = failure
