#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Flat and hierarchical collectives beside each other: this machine plays HOSTS hosts of EACH ranks, SHM
# inside and ETHERNET between them.
#
#   benchmarks/two-hosts.sh [COLLECTIVE,...]      HOSTS=2 EACH=2 KIB=1024,4096,16384 ROUNDS=15 MILLIS=150
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
home=$(dirname -- "$here")
hosts=${HOSTS:-2} each=${EACH:-2}

export EACH="$each" HOME_OF_FLUXCCL="$home"

"$home/fluxccl" bench --list > /dev/null # builds it once, not in each rank
# shellcheck disable=SC2016
exec "$home/fluxccl" launch -n $((hosts * each)) -- sh -c '
  FLUXCCL_HOSTID=host$((FLUXCCL_RANK / EACH))
  export FLUXCCL_HOSTID
  exec "$HOME_OF_FLUXCCL/fluxccl" bench in-turn "$@"' rank \
  "${1:-all-reduce}" "${ALGORITHMS:-all-pairs,hierarchical}" "${KIB:-1024,4096,16384}" "${ROUNDS:-15}" "${MILLIS:-150}"
