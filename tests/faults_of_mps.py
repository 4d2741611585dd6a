"""What PyTorch and Metal said on real Macs: facts for the table of faults and the simulations."""

from __future__ import annotations

import signal

END = " (may cause system failure)."
# (text of the exception, kind of exception, name of the fault)
EXCEPTIONS: tuple[tuple[str, type[Exception], str], ...] = (
    (
        "MPS backend out of memory (MPS allocated: 18.50 GiB, other allocations: 448.00 KiB, max "
        "allowed: 18.72 GiB). Tried to allocate 512.00 MiB on shared pool. Use "
        "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations" + END,
        RuntimeError,
        "out_of_memory",
    ),
    (
        "MPS backend out of memory (MPS allocated: 5.56 GB, other allocations: 1.10 GB, max "
        "allowed: 6.80 GB). Tried to allocate 768.00 MB on private pool. Use "
        "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations" + END,
        RuntimeError,
        "out_of_memory",
    ),
    (
        "MPS backend out of memory (MPS allocated: 3.00 GB, other allocations: 1.00 MB). Tried to "
        "allocate 256 bytes on private pool.",
        RuntimeError,
        "out_of_memory",
    ),
    ("Invalid buffer size: 14.27 GB", RuntimeError, "out_of_memory"),
    (
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139.80 GiB",
        RuntimeError,
        "out_of_memory",
    ),
    (
        "[enforce fail at alloc_cpu.cpp:114] err == 0. DefaultCPUAllocator: can't allocate memory: "
        "you tried to allocate 4000000000000 bytes. Error code 12 (Cannot allocate memory)",
        RuntimeError,
        "out_of_memory",
    ),
    (
        "DefaultCPUAllocator: not enough memory: you tried to allocate 1234 bytes.",
        RuntimeError,
        "out_of_memory",
    ),
    (
        "MPS backend out of memory (MPS allocated: 0 bytes, other allocations: 0 bytes, max "
        "allowed: 1.70 GB). Tried to allocate 0 bytes on private pool. Use "
        "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations" + END,
        RuntimeError,
        "no_memory_at_all",
    ),
    (
        "The operator 'aten::im2col' is not currently implemented for the MPS device. If you want "
        "this op to be added in priority during the prototype phase of this feature, please "
        "comment on https://github.com/pytorch/pytorch/issues/77764. As a temporary fix, you can "
        "set the environment variable `PYTORCH_ENABLE_MPS_FALLBACK=1` to use the CPU as a fallback "
        "for this op. WARNING: this will be slower than running natively on MPS.",
        NotImplementedError,
        "unsupported_operator",
    ),
    (
        "The operator 'aten::channel_shuffle.out' is not currently implemented for the MPS device. "
        "If you want this op to be considered for addition please comment on "
        "https://github.com/pytorch/pytorch/issues/141287 and mention use-case, that resulted in "
        "missing op as well as commit hash 0123456789. As a temporary fix, you can set the "
        "environment variable `PYTORCH_ENABLE_MPS_FALLBACK=1` to use the CPU as a fallback for "
        "this op. WARNING: this will be slower than running natively on MPS.",
        NotImplementedError,
        "unsupported_operator",
    ),
    ("DispatchStub: missing MPS kernel", RuntimeError, "unsupported_operator"),
    ("Conv3D is not supported on MPS", RuntimeError, "unsupported_operator"),
    (
        "MPS: nonzero op is supported natively starting from macOS 13.0",
        RuntimeError,
        "unsupported_operator",
    ),
    (
        "Could not run 'aten::empty.memory_format' with arguments from the 'MPS' backend. This "
        "could be because the operator doesn't exist for this backend",
        NotImplementedError,
        "unsupported_operator",
    ),
    (
        "Adaptive pool MPS: input sizes must be divisible by output sizes.",
        RuntimeError,
        "pooling_sizes",
    ),
    (
        "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support "
        "float64. Please use float32 instead.",
        TypeError,
        "precision",
    ),
    ("BFloat16 is not supported on MPS", TypeError, "precision"),
    ("MPS BFloat16 is only supported on MacOS 14 or newer", TypeError, "precision"),
    (
        "Trying to convert ComplexDouble to the MPS backend but it does not have support for that "
        "dtype.",
        TypeError,
        "precision",
    ),
    ("Complex types are unsupported on MPS", TypeError, "precision"),
    ("Placeholder storage has not been allocated on MPS device!", RuntimeError, "placement"),
    ("Passed CPU tensor to MPS op", RuntimeError, "placement"),
    (
        "slow_conv2d_forward_mps: input(device='cpu') and weight(device=mps:0')  must be on the "
        "same device",
        RuntimeError,
        "placement",
    ),
    ("Placeholder tensor is empty!", RuntimeError, "empty_batch"),
    ("MPS supports tensors with dimensions <= 16, but got 17.", RuntimeError, "empty_batch"),
    (
        "MPS command buffer execution failed: Caused GPU Hang Error (00000003). This error may "
        "have been asynchronously reported, so the stack trace below might be incorrect.",
        RuntimeError,
        "driver",
    ),
    (
        "The MPS backend is supported on MacOS 12.3+.Current OS version can be queried using "
        "`sw_vers`",
        RuntimeError,
        "unavailable",
    ),
    (
        "The MPS backend is supported on MacOS 14.0+. Current OS version can be queried using "
        "`sw_vers`",
        RuntimeError,
        "unavailable",
    ),
    *(
        (
            f"The MPS backend is supported on {system}+. Current OS version can be queried using "
            "`sw_vers`",
            RuntimeError,
            "unavailable",
        )
        for system in ("MacOS 13.0", "macOS 14.0", "macOS 15.0")
    ),
    (
        "MPS backend is unavailable: no supported Metal GPU was found. This can happen when "
        "running inside a virtual machine, sandbox or container without GPU access",
        RuntimeError,
        "unavailable",
    ),
    (
        "Cannot execute deviceSynchronize() without MPS backend.",
        RuntimeError,
        "unavailable",
    ),
    ("PyTorch is not linked with support for mps devices", RuntimeError, "unavailable"),
    (
        "MPS backend is only supported on devices with unified memory",
        RuntimeError,
        "unavailable",
    ),
    ("Numpy is not available", RuntimeError, "numpy"),
    (
        "A module that was compiled using NumPy 1.x cannot be run in NumPy 2.0.0 as it may crash",
        ImportError,
        "numpy",
    ),
)

# (last words on file descriptor 2, signal or exit code, what the user reads of them)
CRASHES: tuple[tuple[str, int, str], ...] = (
    (
        "/AppleInternal/Library/BuildRoots/x/MPSCore/Types/MPSNDArray.mm:794: failed assertion "
        "`[MPSNDArray, initWithBuffer:descriptor:] Error: buffer is not large enough. Must be 768 "
        "bytes'",
        -signal.SIGABRT,
        "Metal refused a computation",
    ),
    (
        "/AppleInternal/x/MPSNDArrayPooling.mm:1980: failed assertion `Error: destination values "
        "and indices length mismatch along axis 0'",
        -signal.SIGABRT,
        "Metal refused a computation",
    ),
    (
        "-[_MTLCommandBuffer addCompletedHandler:]:867: failed assertion `Completed handler "
        "provided after commit call'",
        -signal.SIGABRT,
        "lost track of its work",
    ),
    (
        "-[IOGPUMetalCommandBuffer validate]:215: failed assertion 'commit an already committed "
        "command buffer'",
        134,
        "lost track of its work",
    ),
    (
        "-[IOGPUMetalCommandBuffer tryCoalescingPreviousComputeCommandEncoderWithConfig:"
        "nextEncoderClass:]:1094: failed assertion `A command encoder is already encoding to this "
        "command buffer'",
        -signal.SIGABRT,
        "lost track of its work",
    ),
    (
        "libc++abi: terminating with uncaught exception of type c10::TypeError: Cannot convert",
        -signal.SIGABRT,
        "PyTorch failed deep inside",
    ),
    ("", -signal.SIGBUS, "crashed inside PyTorch or the graphics driver"),
    ("", 138, "crashed inside PyTorch or the graphics driver"),
    ("", -signal.SIGSEGV, "crashed inside PyTorch or the graphics driver"),
    (
        "Compiler encountered XPC_ERROR_CONNECTION_INVALID (is the OS shutting down?)",
        -signal.SIGABRT,
        "Metal's compiler could not be reached",
    ),
    (
        "OMP: Error #15: Initializing libomp.dylib, but found libomp.dylib already initialized.",
        -signal.SIGABRT,
        "Two copies of the same library",
    ),
    (
        "objc[123]: +[__NSCFConstantString initialize] may have been in progress in another thread "
        "when fork() was called.",
        -signal.SIGABRT,
        "Metal's compiler could not be reached",
    ),
    ("", -signal.SIGKILL, "The system ended the training engine"),
    ("", 3, "ended unexpectedly"),
    (
        "/AppleInternal/x/MPSNDArrayConvolutionA14.mm:4352: failed assertion `destination kernel "
        "width and filter kernel width mismatch'",
        -signal.SIGABRT,
        "Metal refused a computation",
    ),
)

GARBAGE = (
    "Error: command buffer exited with error status.\n\tThe Metal Performance Shaders operations "
    "encoded on it may not have completed.\n\tError: \n\t(null)\n\tInternal Error "
    "(0000000e:Internal Error)\n\t<AGXG14XFamilyCommandBuffer: 0x12345>\n",
    "\tInsufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)\n",
    "\tImpacting Interactivity (0000000e:kIOGPUCommandBufferCallbackErrorImpactingInteractivity)\n",
    "\tIgnored (for causing prior/excessive GPU errors) (00000004:kIOGPUCommandBufferCallback"
    "ErrorSubmissionsIgnored)\n",
)

FALLBACK = (
    "The operator 'aten::{name}' is not currently supported on the MPS backend and will fall back "
    "to run on the CPU. This may have performance implications. (Triggered internally at "
    "/Users/runner/work/pytorch/aten/src/ATen/mps/MPSFallback.mm:14.)"
)
