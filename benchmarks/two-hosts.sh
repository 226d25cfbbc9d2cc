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

# Benchmarks are compiled with the tests.
[ -f "$home/target/test-classes/io/fluxccl/benchmarks/AlgorithmsInTurn.class" ] ||
  (cd "$home" && ./mvnw -q -B -DskipTests test-compile >&2)
FLUXCCL_CLASSPATH=$home/target/test-classes
export FLUXCCL_CLASSPATH EACH="$each" HOME_OF_FLUXCCL="$home"

# shellcheck disable=SC2016
exec "$home/fluxccl" launch -n $((hosts * each)) -- sh -c '
  FLUXCCL_HOSTID=host$((FLUXCCL_RANK / EACH))
  export FLUXCCL_HOSTID
  exec "$HOME_OF_FLUXCCL/fluxccl" exec io.fluxccl.benchmarks.AlgorithmsInTurn "$@"' rank \
  "${1:-all-reduce}" "${ALGORITHMS:-all-pairs,hierarchical}" "${KIB:-1024,4096,16384}" "${ROUNDS:-15}" "${MILLIS:-150}"
