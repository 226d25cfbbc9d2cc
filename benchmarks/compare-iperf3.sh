#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One TCP stream over the loopback: FluxCCL beside iperf3. Both run in turn ROUNDS times; each figure
# is the median of its rounds.
#
#   benchmarks/compare-iperf3.sh        ROUNDS=3 SECONDS_EACH=5 PORT=5299
#
# BENCHMARK   ethernet, the transport (the default), or tcp, the network for NCCL
# ARGUMENTS   of the benchmark: for tcp "4 2" is four streams and two I/O threads
#
# Needs iperf3: apt-get install iperf3
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
home=$(dirname -- "$here")
rounds=${ROUNDS:-3} seconds=${SECONDS_EACH:-5} port=${PORT:-5299}

command -v iperf3 >/dev/null || {
  echo "compare-iperf3: no iperf3; apt-get install iperf3" >&2
  exit 1
}
benchmark=${BENCHMARK:-ethernet}

work=$(mktemp -d)
server=
tidy() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  rm -rf "$work"
}
trap tidy EXIT
trap 'exit 130' INT TERM

# Gives the best size of one run in GB/s; lines are "... 3.21 GB/s".
ours() {
  # shellcheck disable=SC2086
  "$home/fluxccl" bench "$benchmark" ${ARGUMENTS:-} > "$work/ours"
  awk '{ for (i = 1; i <= NF; i++) if ($i == "GB/s" && $(i - 1) + 0 > best) best = $(i - 1) + 0 }
    END { if (!best) exit 1; print best }' "$work/ours" || {
    echo "compare-iperf3: $benchmark printed no GB/s" >&2
    return 1
  }
}

peer() {
  iperf3 -s -1 --forceflush -B 127.0.0.1 -p "$port" > "$work/server" 2>&1 &
  server=$!
  # The server says when it listens.
  tries=0
  until grep -q listening "$work/server"; do
    tries=$((tries + 1))
    [ "$tries" -le 50 ] || {
      echo "compare-iperf3: iperf3 -s does not listen on port $port" >&2
      cat "$work/server" >&2
      return 1
    }
    sleep 0.1
  done
  iperf3 -c 127.0.0.1 -p "$port" -t "$seconds" -f m > "$work/client"
  wait "$server" || true
  server=
  # Megabits of the receiver to gigabytes.
  awk '/receiver/ { for (i = 1; i <= NF; i++) if ($i == "Mbits/sec") v = $(i - 1) } END { if (!v) exit 1; print v / 8000 }' "$work/client"
}

median() { sort -n "$1" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

round=1
while [ "$round" -le "$rounds" ]; do
  echo "round $round of $rounds" >&2
  peer >> "$work/peers"
  ours >> "$work/own"
  round=$((round + 1))
done
own=$(median "$work/own")
theirs=$(median "$work/peers")
echo "# one TCP stream, loopback; median of $rounds rounds, ours at its best size"
echo "# $(uname -srm), $(nproc) x $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo 2>/dev/null | head -n 1), $(date -u +%Y-%m-%d), $(iperf3 --version | head -n 1)"
printf '%16s %14s %10s\n' 'FluxCCL (GB/s)' 'iperf3 (GB/s)' 'ratio'
awk -v a="$own" -v b="$theirs" 'BEGIN { printf "%16.2f %14.2f %10.2f\n", a, b, a / b }'
echo "# ratio: our bandwidth over theirs; above 1 is faster"
