from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from macapp import faults
from tests import faults_of_mps

BY_NAME = {fault.name: fault for fault in faults.FAULTS}


@pytest.mark.parametrize(("text", "kind", "name"), faults_of_mps.EXCEPTIONS)
def test_every_known_text_is_recognised(text: str, kind: type[Exception], name: str) -> None:
    del kind
    failure = faults.recognise(text, "Traceback …")
    assert failure is not None
    assert failure.what.text == BY_NAME[name].what
    assert failure.remedy.text == BY_NAME[name].remedy
    assert failure.details == "Traceback …"
    assert failure.topic
    assert faults.is_out_of_memory(text) is (name == "out_of_memory")
    said = f"{failure.what} {failure.remedy}"
    assert "PYTORCH_" not in said  # for developers only
    assert said.count(".") >= 2


def test_a_missing_operator_is_named() -> None:
    named = [
        faults.recognise(text) for text, _, name in faults_of_mps.EXCEPTIONS if "'aten" in text
    ]
    said = [str(failure.what) for failure in named if failure is not None]
    assert "Metal cannot compute one operator of this network (im2col)." in said
    assert "Metal cannot compute one operator of this network (channel_shuffle)." in said


def test_other_errors_are_not_recognised() -> None:
    for text in ("", "list index out of range", "division by zero", "the memory of an elephant"):
        assert faults.recognise(text) is None


@given(st.text())
def test_no_text_is_too_strange(text: str) -> None:
    faults.recognise(text)
    faults.garbage(text)
    failure = faults.describe_end(-6, text, had_job=True)
    assert str(failure.what)
    assert str(failure.remedy)


@pytest.mark.parametrize(("words", "how", "what"), faults_of_mps.CRASHES)
def test_every_known_end_is_described(words: str, how: int, what: str) -> None:
    failure = faults.describe_end(how, words, had_job=True)
    assert what in str(failure.what)
    assert words in failure.details
    assert failure.blames_device
    assert "SIG" not in f"{failure.what} {failure.remedy}"


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (0, ""),
        (1, ""),
        (-6, "SIGABRT"),
        (134, "SIGABRT"),
        (139, "SIGSEGV"),
        (-9, "SIGKILL"),
        (None, ""),
        (255, ""),
        (-250, "signal 250"),
    ],
)
def test_signals_have_names(code: int | None, name: str) -> None:
    assert faults.signal_name(code) == name


@pytest.mark.parametrize("printed", faults_of_mps.GARBAGE)
@given(cuts=st.lists(st.integers(0, 400), max_size=5))
def test_garbage_is_found_however_it_is_cut(printed: str, cuts: list[int]) -> None:
    data = b"some warning\n" + printed.encode()
    places = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    detector = faults.GarbageDetector()
    found = [detector.take(data[a:b]) for a, b in pairwise(places)]
    assert sum(found) == 1
    assert detector.line in printed
    assert not detector.take(data)  # the first one is enough


@given(st.binary())
def test_a_detector_takes_any_bytes(data: bytes) -> None:
    faults.GarbageDetector().take(data)


def test_harmless_lines_are_no_garbage() -> None:
    detector = faults.GarbageDetector()
    assert not detector.take(b"UserWarning: the error status of a command\nImpacting nothing\n")
