#!/bin/sh
# Starts torchrun as one node of a gang: sh launch.sh SCRIPT [ARGUMENT]...
set -eu
if [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then
    processes=$(printf '%s' "$CUDA_VISIBLE_DEVICES" | tr ',' '\n' | wc -l)
    processes=$((processes + 1))
else
    processes=2
fi
exec python3 -m torch.distributed.run \
    --nnodes="$WORLD_SIZE" --node-rank="$RANK" --nproc-per-node="$processes" \
    --master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT" --max-restarts=0 "$@"
