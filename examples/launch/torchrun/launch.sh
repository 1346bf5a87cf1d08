#!/bin/sh
# Starts torchrun as one node of a gang: sh launch.sh SCRIPT [ARGUMENT]...
set -eu
if [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then
    processes=$(printf '%s' "$CUDA_VISIBLE_DEVICES" | tr ',' '\n' | wc -l)
    processes=$((processes + 1))
else
    processes=2
fi
# With underscores the options work in every version.
exec python3 -m torch.distributed.run \
    --nnodes="$WORLD_SIZE" --node_rank="$RANK" --nproc_per_node="$processes" \
    --master_addr="$MASTER_ADDR" --master_port="$MASTER_PORT" --max_restarts=0 "$@"
