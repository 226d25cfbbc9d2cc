#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A soak between hosts while their network fails: two network namespaces of this machine are hosts of EACH ranks. Ranks
# are killed and replaced. Every FAULT seconds, in turn, the link is down for 0.2 s or 2 s, all TCP connections between
# the hosts are destroyed, or a rank is stopped for 2 s. Needs root.
#
#   benchmarks/soak-two-hosts.sh [SECONDS [OPTION OF bench soak...]]      EACH=2 KILL=20 FAULT=7
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
home=$(dirname -- "$here")
seconds=${1:-3600}
[ $# -eq 0 ] || shift
each=${EACH:-2} pause=${FAULT:-7}

"$home/fluxccl" bench --list > /dev/null # builds it first
. "$here/namespaces"
wrapper=$(mktemp)
trap 'tidy; rm -f "$wrapper"' EXIT
cat > "$wrapper" << END
#!/bin/sh
host=a
[ \$FLUXCCL_RANK -lt $each ] || host=b
export FLUXCCL_ADDR=10.78.0.1:7900 FLUXCCL_HOSTID=$name\$host
exec ip netns exec $name\$host "\$@"
END
chmod +x "$wrapper"

faults() {
  set +e
  while :; do
    for down in 0.2 2; do
      sleep "$pause"
      ip -n "${name}a" link set eth0 down
      sleep $down
      ip -n "${name}a" link set eth0 up
    done
    sleep "$pause"
    ip netns exec "${name}b" ss --no-header --kill state established dst 10.78.0.1 > /dev/null 2>&1
    sleep "$pause"
    rank=$(ip netns pids "${name}b" | shuf -n 1)
    kill -STOP "$rank"
    sleep 2
    kill -CONT "$rank"
  done 2> /dev/null
}

faults &
processes=$!
"$home/fluxccl" bench soak --ranks $((2 * each)) --seconds "$seconds" --device host \
  --restart --kill-every "${KILL:-20}" --wrap "$wrapper" "$@"
