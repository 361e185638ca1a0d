#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""An all-reduce of 64 MiB through NCCL, one process a GPU, timed:

    torchrun --standalone --nproc_per_node=2 all_reduce.py [--stay FILE]

Each rank prints one line that says where it runs, rank 0 one with the median time. With --stay they
keep their contexts until FILE is there, at most 60 s.
"""
import argparse
import ctypes
import os
import statistics
import time

# Nothing here needs multicast over NVLink, and in a virtual machine it can disturb others.
os.environ["NCCL_NVLS_ENABLE"] = "0"
os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"
os.environ["NVSHMEM_DISABLE_NVLS"] = "1"

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

N_BYTES = 64 << 20
N_WARM_UP = 20
N_TIMED = 50
STAY_SECONDS = 60
CUDA_ATTRIBUTE_MPS_ENABLED = 133


def under_mps(index):
    """1 under MPS, 0 without, -1 when the driver does not say."""
    cuda = ctypes.CDLL("libcuda.so.1")
    device = ctypes.c_int()
    value = ctypes.c_int()
    if cuda.cuInit(0) != 0 or cuda.cuDeviceGet(ctypes.byref(device), index) != 0:
        return -1
    attribute = CUDA_ATTRIBUTE_MPS_ENABLED
    if cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device) != 0:
        return -1
    return value.value


def device_uuid(index):
    uuid = str(getattr(torch.cuda.get_device_properties(index), "uuid", "unknown"))
    return uuid if uuid.startswith("GPU-") else "GPU-" + uuid


def median_ms():
    """From the end of one all-reduce to the end of the next, on the GPU's own clock."""
    data = torch.zeros(N_BYTES // 4, device="cuda")
    for _ in range(N_WARM_UP):
        dist.all_reduce(data)
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(N_TIMED + 1)]
    marks[0].record()
    for mark in marks[1:]:
        dist.all_reduce(data)
        mark.record()
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in zip(marks, marks[1:]))


def say(line):
    """A line in one piece: the other ranks write to the same pipe."""
    os.write(1, (line + "\n").encode())


def stay(path):
    end = time.monotonic() + STAY_SECONDS
    while not os.path.exists(path) and time.monotonic() < end:
        time.sleep(0.02)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--stay", metavar="FILE")
    options = parser.parse_args()
    index = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(index)
    dist.init_process_group("nccl")
    ones = torch.ones(1, device="cuda")
    dist.all_reduce(ones)
    ms = median_ms()
    say(
        f"rank {dist.get_rank()} pid {os.getpid()} device {device_uuid(index)} "
        f"visible {os.environ.get('CUDA_VISIBLE_DEVICES', 'all')} "
        f"mps {under_mps(index)} sum {ones.item():g}"
    )
    if dist.get_rank() == 0:
        say(f"all_reduce ms {ms:.4f}")
    if options.stay:
        stay(options.stay)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
