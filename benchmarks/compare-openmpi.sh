#!/bin/sh
# All-reduce between processes of this machine: FluxCCL on the host device beside Open MPI, float
# sum, in place. Both run in turn ROUNDS times; each figure is the median of its rounds.
#
#   benchmarks/compare-openmpi.sh                RANKS=2 MIN=1024 MAX=67108864 FACTOR=4 ROUNDS=3
#   PERF_OPTIONS="--transport SHM" ...           more options for fluxccl perf
#
# Needs Open MPI with its compiler: apt-get install openmpi-bin libopenmpi-dev
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
ranks=${RANKS:-2} min=${MIN:-1024} max=${MAX:-67108864} factor=${FACTOR:-4} rounds=${ROUNDS:-3}

for tool in mpicc mpirun; do
  command -v "$tool" >/dev/null || {
    echo "compare-openmpi: no $tool; apt-get install openmpi-bin libopenmpi-dev" >&2
    exit 1
  }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
mpicc -O3 -o "$work/openmpi_allreduce" "$here/openmpi_allreduce.c"

# Shared memory only; its component was renamed in Open MPI 5.
version=$(mpirun --version | sed -n '1s/.* \([0-9][0-9]*\)\..*/\1/p')
if [ "${version:-4}" -ge 5 ]; then btl=self,sm; else btl=self,vader; fi
as_root=
[ "$(id -u)" -ne 0 ] || as_root=--allow-run-as-root

open_mpi() {
  # shellcheck disable=SC2086
  mpirun $as_root --oversubscribe -n "$ranks" --mca pml ob1 --mca btl "$btl" \
    "$work/openmpi_allreduce" "$min" "$max" "$factor"
}

ours() {
  # shellcheck disable=SC2086
  "$here/../fluxccl" perf all-reduce --ranks "$ranks" --device host -d float -o sum \
    -b "$min" -e "$max" -f "$factor" ${PERF_OPTIONS:-}
}

"$here/../fluxccl" --version >&2
: > "$work/times"
round=1
while [ "$round" -le "$rounds" ]; do
  echo "round $round of $rounds" >&2
  open_mpi > "$work/peer"
  ours > "$work/ours"
  sed 's/^/peer /' "$work/peer" >> "$work/times"
  awk '!/^#/ && NF == 8 { print "ours", $1, $5 }' "$work/ours" >> "$work/times"
  round=$((round + 1))
done

echo "# all-reduce, float sum, in place, $ranks ranks; median of $rounds rounds"
echo "# $(uname -srm), $(nproc) x $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo 2>/dev/null | head -n 1), $(date -u +%Y-%m-%d)"
echo "# $(mpirun --version | head -n 1), $("$here/../fluxccl" info | sed -n 's/^  java *//p')"
printf '%12s %14s %14s %10s\n' 'bytes' 'FluxCCL (us)' 'Open MPI (us)' 'ratio'
sort -k1,1 -k2,2n -k3,3n "$work/times" | awk -v rounds="$rounds" '
  { n[$1 " " $2]++; time[$1 " " $2 " " n[$1 " " $2]] = $3; if ($1 == "peer" && n[$1 " " $2] == 1) sizes[++count] = $2 }
  function median(who, size,   k) { k = n[who " " size]; return k ? time[who " " size " " int((k + 1) / 2)] : 0 }
  END {
    for (i = 1; i <= count; i++) {
      ours = median("ours", sizes[i]); peer = median("peer", sizes[i])
      if (ours == 0) { print "compare-openmpi: no figure of ours for " sizes[i] > "/dev/stderr"; exit 1 }
      printf "%12d %14.2f %14.2f %10.2f\n", sizes[i], ours, peer, ours / peer
    }
  }'
echo "# ratio: our time over theirs; below 1 is faster"
