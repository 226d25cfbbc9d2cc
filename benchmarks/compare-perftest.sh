#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# RDMA writes on one machine: FluxCCL's IB0 beside perftest's ib_write_bw (64 KiB) and ib_write_lat (8
# bytes), both between two ends on the same device. Each runs in turn ROUNDS times; the figures are
# medians. Without an RDMA device, all of it runs in one boot of a guest that has Soft-RoCE
# (src/test/rdma/guest), emulated: good for ratios only.
#
#   benchmarks/compare-perftest.sh        ROUNDS=3 WRITES=2000 PINGPONGS=1000
#
# Needs perftest, and for the guest what `src/test/rdma/guest --check` names.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export ROUNDS=${ROUNDS:-3} WRITES=${WRITES:-2000} PINGPONGS=${PINGPONGS:-1000}

if [ "${1:-}" != --measure ]; then
  ./mvnw -q -B -DskipTests test-compile dependency:build-classpath -Dmdep.includeScope=test \
    -Dmdep.outputFile="$PWD/target/rdma-classpath" >&2
  if compgen -G '/sys/class/infiniband/*' >/dev/null; then
    exec benchmarks/compare-perftest.sh --measure
  fi
  exec src/test/rdma/guest "${FLUXCCL_RDMA_CACHE:-target/rdma}" env \
    "JAVA_HOME=${JAVA_HOME:-}" ROUNDS="$ROUNDS" WRITES="$WRITES" PINGPONGS="$PINGPONGS" \
    benchmarks/compare-perftest.sh --measure
fi

device=$(find /sys/class/infiniband/ -mindepth 1 -printf '%f\n' | sort -V | head -n 1)
address=$(sed -n 's/^0000:0000:0000:0000:0000:ffff:\(..\)\(..\):\(..\)\(..\)$/0x\1 0x\2 0x\3 0x\4/p' \
  "/sys/class/infiniband/$device"/ports/1/gids/* 2>/dev/null | head -n 1)
# shellcheck disable=SC2086
address=$(printf '%d.%d.%d.%d' $address)
java=${JAVA_HOME:+$JAVA_HOME/bin/}java
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# perftest TOOL SIZE ITERATIONS COLUMN: the last line of numbers, that column.
perftest() {
  "$1" -R -d "$device" -s "$2" -n "$3" >"$work/server" 2>&1 &
  local server=$!
  sleep 3
  timeout 120 "$1" -R -d "$device" -s "$2" -n "$3" "$address" >"$work/client" 2>&1 || {
    cat "$work/client" >&2
    kill "$server" 2>/dev/null || true
    return 1
  }
  wait "$server" || true
  awk -v c="$4" '/^ *[0-9]+ +[0-9]/ { v = $c } END { print v }' "$work/client"
}

for round in $(seq "$ROUNDS"); do
  echo "round $round of $ROUNDS" >&2
  perftest ib_write_bw 65536 "$WRITES" 4 >>"$work/bandwidth-theirs"
  perftest ib_write_lat 8 "$PINGPONGS" 5 >>"$work/latency-theirs"
  # As a rank of a launcher: in this process, because a guest takes long to start another one.
  FLUXCCL_RANK=0 FLUXCCL_NRANKS=1 timeout 200 "$java" --add-opens=java.base/jdk.internal.misc=ALL-UNNAMED \
    --add-exports=java.base/sun.nio.ch=ALL-UNNAMED -XX:TieredStopAtLevel=1 -XX:+UseSerialGC \
    -cp "target/test-classes:target/classes:$(cat target/rdma-classpath)" \
    io.fluxccl.cli.BenchMain ib "$WRITES" "$PINGPONGS" | tee "$work/ours" >&2
  awk '/64 KiB/ { for (i = 1; i <= NF; i++) if ($i == "MB/s") print $(i - 1) }' "$work/ours" >>"$work/bandwidth-ours"
  awk '/signal, p50/ { for (i = 1; i <= NF; i++) if ($i == "us") print $(i - 1) }' "$work/ours" >>"$work/latency-ours"
done

median() { sort -n "$1" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
echo "# $device at $address, $(uname -srm), $(nproc) x $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(date -u +%Y-%m-%d)"
printf '%-24s %14s %14s %8s\n' '' ours perftest ratio
awk -v a="$(median "$work/bandwidth-ours")" -v b="$(median "$work/bandwidth-theirs")" \
  'BEGIN { printf "%-24s %9.2f MB/s %9.2f MB/s %8.2f\n", "write 64 KiB", a, b, a / b }'
awk -v a="$(median "$work/latency-ours")" -v b="$(median "$work/latency-theirs")" \
  'BEGIN { printf "%-24s %11.2f us %11.2f us %8.2f\n", "write 8 B, one way, p50", a, b, a / b }'
