"""What an arm is built from, and why one cannot run."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from greenlove_tracker.techniques.arm import is_out_of_memory  # noqa: E402


@pytest.mark.parametrize(
    "error",
    [
        torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"),
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ],
)
def test_out_of_memory_is_known_whoever_says_it(error) -> None:
    assert is_out_of_memory(error)


@pytest.mark.parametrize("error", [RuntimeError("mat1 and mat2 shapes"), ValueError("out of memory of the past")])
def test_other_errors_are_none(error) -> None:
    assert not is_out_of_memory(error)


def test_torchs_own_allocator_says_so() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)
