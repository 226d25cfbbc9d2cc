#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Collectives between processes of this machine: FluxCCL on the host device beside Open MPI, floats,
# sums, out of place (where an all-reduce is wanted in place: IN_PLACE=in). Both run in turn ROUNDS
# times; of each the best batch of calls counts, because what else runs can only add.
#
#   benchmarks/compare-openmpi.sh [collective...]   RANKS=2 MIN=16384 MAX=16777216 FACTOR=4 ROUNDS=3
#
# "registered" is on buffers that all ranks registered, "unregistered" on any others. MILLIS is how long
# each size is measured in each round. Needs Open MPI with its compiler: apt-get install openmpi-bin
# libopenmpi-dev
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
ranks=${RANKS:-2} min=${MIN:-16384} max=${MAX:-16777216} factor=${FACTOR:-4} rounds=${ROUNDS:-3}
millis=${MILLIS:-200} in_place=${IN_PLACE:-}
[ $# -gt 0 ] || set -- all-reduce all-gather reduce-scatter broadcast reduce all-to-all gather \
  scatter send-receive

for tool in mpicc mpirun; do
  command -v "$tool" >/dev/null || {
    echo "compare-openmpi: no $tool; apt-get install openmpi-bin libopenmpi-dev" >&2
    exit 1
  }
done
fluxccl=$here/../fluxccl
"$fluxccl" --version >&2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
mpicc -O3 -o "$work/openmpi_collectives" "$here/openmpi_collectives.c"

# Shared memory only; its component was renamed in Open MPI 5.
version=$(mpirun --version | sed -n '1s/.* \([0-9][0-9]*\)\..*/\1/p')
if [ "${version:-4}" -ge 5 ]; then btl=self,sm; else btl=self,vader; fi
as_root=
[ "$(id -u)" -ne 0 ] || as_root=--allow-run-as-root

open_mpi() {
  # shellcheck disable=SC2086
  mpirun $as_root --oversubscribe -n "$ranks" --mca pml ob1 --mca btl "$btl" \
    "$work/openmpi_collectives" "$1" "$min" "$max" "$factor" "$millis" $in_place
}

ours() {
  # shellcheck disable=SC2086
  "$fluxccl" bench host-collectives --ranks "$ranks" "$1" "$min" "$max" "$factor" "$millis" $in_place $2 |
    awk '$1 == "host-collectives" { print $2, $3, $4 }'
}

: > "$work/times"
round=1
while [ "$round" -le "$rounds" ]; do
  for collective in "$@"; do
    echo "round $round of $rounds: $collective" >&2
    open_mpi "$collective" | sed "s/^/peer $collective /" >> "$work/times"
    ours "$collective" registered | sed 's/^/registered /' >> "$work/times"
    ours "$collective" "" | sed 's/^/unregistered /' >> "$work/times"
  done
  round=$((round + 1))
done

echo "# float sums, $ranks ranks, ${in_place:+in place, }best of $rounds rounds; microseconds a call"
echo "# $(uname -srm), $(nproc) x $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo 2>/dev/null | head -n 1), $(date -u +%Y-%m-%d)"
echo "# $(mpirun --version | head -n 1), $("$fluxccl" info | sed -n 's/^  java *//p')"
awk '
  { key = $2 " " $3; if (!(($1, key) in best) || $4 < best[$1, key]) best[$1, key] = $4
    if (!(key in seen)) { seen[key] = 1; keys[++count] = key } }
  END {
    printf "%-15s %12s %12s %12s %12s %8s %8s\n", "collective", "bytes", "registered", "unregistered", "Open MPI", "ratio", "ratio"
    for (i = 1; i <= count; i++) {
      split(keys[i], part, " ")
      peer = best["peer", keys[i]]; known = best["registered", keys[i]]; any = best["unregistered", keys[i]]
      if (peer == 0 || known == 0 || any == 0) { print "compare-openmpi: a figure is missing for " keys[i] > "/dev/stderr"; exit 1 }
      printf "%-15s %12d %12.2f %12.2f %12.2f %8.2f %8.2f\n", part[1], part[2], known, any, peer, known / peer, any / peer
    }
  }' "$work/times"
echo "# ratios: our time over theirs, registered and unregistered; below 1 is faster"
