from __future__ import annotations

import pytest

from macapp.engine import failures

NOT_ENOUGH = "There is not enough memory for this run."


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(
            "MPS backend out of memory (MPS allocated: 18.50 GiB, other allocations: 448.00 KiB, "
            "max allowed: 18.72 GiB). Tried to allocate 512.00 MiB on shared pool. Use "
            "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations "
            "(may cause system failure)."
        ),
        RuntimeError("Invalid buffer size: 14.27 GB"),
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate memory"
        ),
        MemoryError(),
    ],
)
def test_every_way_to_run_out_of_memory_is_one_sentence(error: Exception) -> None:
    failure = failures.describe(error)
    assert str(failure.what) == NOT_ENOUGH
    assert "smaller batch" in str(failure.remedy)
    assert "PYTORCH_" not in str(failure.what) + str(failure.remedy)


def test_the_unexpected_keeps_its_traceback_in_the_details() -> None:
    try:
        raise ValueError("surprise {braces}")
    except ValueError as error:
        failure = failures.describe(error)
    assert "unexpected" in str(failure.what)
    assert "surprise {braces}" in failure.details
    assert "Traceback" in failure.details
    assert "Traceback" not in str(failure.what) + str(failure.remedy)
