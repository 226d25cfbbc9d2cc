#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds libdisni.so, DiSNI's native half: native/disni/build.sh TARGET [JAVA_HOME]
#
# TARGET      the folder of classes; the library goes to TARGET/io/fluxccl/native/linux-<machine>/
# JAVA_HOME   whose include/jni.h to use; the environment's otherwise
# CC, CFLAGS  the compiler and more options for it
#
# Does nothing if the library is newer than its sources. Builds nothing, and prints nothing, without a C
# compiler, jni.h or the headers of libibverbs: only IB0 to IB7 need it, and `fluxccl info` then gives the reason.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
target=${1:?usage: native/disni/build.sh TARGET [JAVA_HOME]}/io/fluxccl/native/linux-$(uname -m)
java_home=${2:-${JAVA_HOME:-}}
library=$target/libdisni.so

if [ -f "$library" ] && [ -z "$(find "$here" -newer "$library" | head -n 1)" ]; then
  exit 0
fi

[ "$(uname -s)" = Linux ] || exit 0
compiler=${CC:-}
for candidate in cc gcc clang; do
  [ -n "$compiler" ] || compiler=$(command -v "$candidate" || true)
done
[ -n "$compiler" ] || exit 0
[ -f "$java_home/include/jni.h" ] || exit 0
# shellcheck disable=SC2086
printf '#include <infiniband/verbs.h>\n' |
  "$compiler" ${CFLAGS:-} -E -x c - >/dev/null 2>&1 ||
  exit 0

mkdir -p "$target"
# Another build may run at the same time: each writes a file of its own, the rename is atomic.
new=$library.$$
trap 'rm -f "$new"' EXIT
# shellcheck disable=SC2086
"$compiler" -std=c11 -O2 -Wall -Wextra -Werror -fvisibility=hidden -fPIC -shared \
  -Wl,-soname,libdisni.so -Wl,-z,now \
  -I"$java_home/include" -I"$java_home/include/linux" ${CFLAGS:-} \
  "$here"/*.c -o "$new" -libverbs -ldl
mv -f "$new" "$library"
