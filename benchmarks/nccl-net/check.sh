#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# PyTorch on two GPUs of one host over FluxCCL as NCCL's network: are collectives right, how fast are
# they beside NCCL's own sockets, and what does one rank see when the other is killed?
#
#   benchmarks/nccl-net/check.sh [LIBRARY]        MINUTES=10 ROUNDS=3 LOGS= PYTHON=python3
#
# LIBRARY   libnccl-net-fluxccl.so; the bundle's or the build's otherwise
# MINUTES   for how long collectives are compared with what they must be
# ROUNDS    how often each network is measured, in turn; the table has the medians
# LOGS      a folder for what the ranks and NCCL write; a temporary one otherwise
#
# Needs two GPUs and a Python with PyTorch (2.11 brings NCCL 2.28.9). All variables of FluxCCL and NCCL
# that are set reach the ranks. Ends with 0 if all is as it should be.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
library=${1:-}
for candidate in "$here/../../lib/libnccl-net-fluxccl.so" "$here/../../target/ncclnet/libnccl-net-fluxccl.so"; do
  [ -n "$library" ] || [ ! -f "$candidate" ] || library=$candidate
done
[ -n "$library" ] && [ -f "$library" ] || {
  echo "check: no libnccl-net-fluxccl.so; name it, or build where there is a C compiler" >&2
  exit 1
}
exec "${PYTHON:-python3}" "$here/nccl_net.py" --library "$(readlink -f -- "$library")" \
  --minutes "${MINUTES:-10}" --rounds "${ROUNDS:-3}" ${LOGS:+--logs "$LOGS"}
