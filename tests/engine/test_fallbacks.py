"""Operators that the CPU computes in Metal's place."""

from __future__ import annotations

import warnings

import pytest
import torch

from macapp import faults
from macapp.engine.fallbacks import FallbackRecorder
from tests import faults_of_mps


def fall_back(*names: str) -> None:
    for name in names:
        text = faults_of_mps.FALLBACK.format(name=name)
        warnings.warn(text, UserWarning, stacklevel=2)


def test_each_operator_is_named_once() -> None:
    with FallbackRecorder(7) as recorder:
        assert recorder.news() is None
        fall_back("im2col", "im2col")
        notice = recorder.news()
        assert notice is not None
        assert (notice.job, notice.kind, notice.topic) == (7, "fallback", "operators")
        assert str(notice.message).startswith("1 operator ran on the CPU, since Metal lacks it: im")
        fall_back("im2col", "col2im.out")
        notice = recorder.news()
        assert notice is not None
        assert "2 operators ran on the CPU" in str(notice.message)
        assert "im2col, col2im." in str(notice.message)
        fall_back("im2col")
        assert recorder.news() is None


def test_what_pytorch_warns_of_once_a_process_is_heard_in_every_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a real warning of the same kind, since the fallback's own needs a Mac."""
    monkeypatch.setattr(faults, "FALLBACK", r"torch\.(searchsorted)\(\): input value tensor is non")

    def search() -> None:
        torch.searchsorted(torch.arange(10.0), torch.rand(6, 4)[:, ::2])

    for _ in range(3):
        with FallbackRecorder() as recorder:
            search()
            notice = recorder.news()
            assert notice is not None
            assert "searchsorted" in str(notice.message)
            recorder.settle()
            assert not torch.is_warn_always_enabled()
    assert not torch.is_warn_always_enabled()


def test_other_warnings_are_shown() -> None:
    def warn() -> None:
        with FallbackRecorder() as recorder:
            warnings.warn("something else", UserWarning, stacklevel=1)
            assert recorder.news() is None

    with pytest.warns(UserWarning, match="something else"):
        warn()
