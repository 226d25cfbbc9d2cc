#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Named all-reduces between hosts, beside one ordered call of the same bytes: two network namespaces of this machine,
# joined by a pair of Ethernet devices, are hosts of EACH ranks. Needs root. Prints rank 0's rows.
#
#   benchmarks/named-two-hosts.sh [ROUNDS [DIVISOR]]      EACH=1
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
home=$(dirname -- "$here")
each=${EACH:-1}
"$home/fluxccl" bench --list > /dev/null # builds it once, not in each rank
. "$here/namespaces"

export FLUXCCL_ADDR=10.78.0.1:7900 FLUXCCL_NRANKS=$((2 * each)) FLUXCCL_DEVICE=host
FLUXCCL_SECRET=$(od -An -N16 -tx1 /dev/urandom | tr -d " \n")
export FLUXCCL_SECRET
rank=0
while [ $rank -lt $((2 * each)) ]; do
  host=a
  [ $rank -lt "$each" ] || host=b
  FLUXCCL_RANK=$rank FLUXCCL_HOSTID=$name$host ip netns exec "$name$host" "$home/fluxccl" bench named "$@" &
  processes="$processes $!"
  rank=$((rank + 1))
done
for process in $processes; do
  wait "$process"
done
processes=
