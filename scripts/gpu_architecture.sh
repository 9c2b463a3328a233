#!/usr/bin/env bash
# What nvcc calls the first GPU of this machine: 80, 90a, ...; 80 without one. CUDA_ARCHITECTURE overrides it.
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1 | tr -d .)
capability=${CUDA_ARCHITECTURE:-${capability:-80}}
[ "$capability" != 90 ] || capability=90a
echo "$capability"
