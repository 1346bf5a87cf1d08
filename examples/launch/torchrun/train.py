"""Computes the sum of the ranks of all processes, on GPUs if available."""

import torch
import torch.distributed as dist


def main():
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    device = torch.device("cpu")
    if backend == "nccl":
        device = torch.device("cuda", rank % torch.cuda.device_count())
    total = torch.tensor([rank + 1], device=device)
    dist.all_reduce(total)
    print(f"rank {rank} of {size}: the sum is {total.item()}", flush=True)
    dist.destroy_process_group()
    assert total.item() == size * (size + 1) // 2


if __name__ == "__main__":
    main()
