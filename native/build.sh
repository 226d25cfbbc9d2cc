#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds libfluxccl.so: native/build.sh TARGET [JAVA_HOME]
#
# TARGET      the folder of classes; the library goes to TARGET/io/fluxccl/native/linux-<machine>/
# JAVA_HOME   whose include/jni.h to use; the environment's otherwise
# CC, CFLAGS  the compiler and more options for it
#
# Does nothing when the library is newer than its sources; and, saying so in one line, when there is
# no C compiler or no jni.h: all but VMM memory, NVRTC, cuBLASLt, vendors' network plugins and NUMA
# binding works without it.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
target=${1:?usage: native/build.sh TARGET [JAVA_HOME]}/io/fluxccl/native/linux-$(uname -m)
java_home=${2:-${JAVA_HOME:-}}
library=$target/libfluxccl.so

if [ -f "$library" ] && [ -z "$(find "$here" -newer "$library" | head -n 1)" ]; then
  exit 0
fi

skip() {
  echo "libfluxccl.so is left out: $1"
  exit 0
}

[ "$(uname -s)" = Linux ] || skip "it is for Linux only"
compiler=${CC:-}
for candidate in cc gcc clang; do
  [ -n "$compiler" ] || compiler=$(command -v "$candidate" || true)
done
[ -n "$compiler" ] || skip "no C compiler (cc, gcc, clang) on the PATH, and CC is not set"
[ -f "$java_home/include/jni.h" ] || skip "no jni.h in ${java_home:-JAVA_HOME (not set)}/include"

mkdir -p "$target"
# Another build may run at the same time: each writes a file of its own, the rename is atomic.
new=$library.$$
trap 'rm -f "$new"' EXIT
# shellcheck disable=SC2086
"$compiler" -std=c11 -O2 -Wall -Wextra -Werror -fvisibility=hidden -fPIC -shared -pthread \
  -Wl,-soname,libfluxccl.so -Wl,-z,now \
  -I"$java_home/include" -I"$java_home/include/linux" ${CFLAGS:-} \
  "$here"/*.c -o "$new" -ldl
mv -f "$new" "$library"
