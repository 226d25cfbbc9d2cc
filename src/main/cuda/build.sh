#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes the built-in kernels: src/main/cuda/build.sh TARGET
#
# TARGET     the folder of classes; two files go to TARGET/io/fluxccl/cuda/:
#              builtin.cu       one translation unit that includes collectives/*.cu, for NVRTC
#              fluxccl.fatbin   the same compiled, when there is nvcc
# CUDA_HOME  where nvcc is looked for (bin/nvcc) before the PATH and /usr/local/cuda
#
# Every collectives/*.cu is compiled in one go with the others, so a name that two files use belongs
# into a header. Does nothing when the sources' checksum (TARGET.kernels.sum) is that of the last build: their
# times say nothing after a checkout.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
target=${1:?usage: src/main/cuda/build.sh TARGET}/io/fluxccl/cuda
fatbin=$target/fluxccl.fatbin
unit=$target/builtin.cu
mkdir -p "$target"
# Another build may run at the same time: each writes files of its own, a rename is atomic.
parts=$fatbin.parts.$$
compiling=
trap '[ -z "$compiling" ] || kill $compiling 2>/dev/null || true; rm -rf "$unit.$$" "$fatbin.$$" "$parts"' EXIT
trap 'exit 130' INT TERM

{
  echo "// Made by build.sh: all kernels that FluxCCL brings along, one translation unit."
  for source in "$here"/collectives/*.cu; do
    echo "#include \"collectives/$(basename "$source")\""
  done
} > "$unit.$$"
cmp -s "$unit.$$" "$unit" || mv -f "$unit.$$" "$unit"

stamp=$1.kernels.sum
sum=$(cd "$here" && find . -type f | LC_ALL=C sort | xargs cksum | cksum)
if [ -f "$fatbin" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$sum" ]; then
  exit 0
fi

skip() {
  rm -f "$fatbin"
  echo "The built-in kernels are left to NVRTC at run time: $1"
  exit 0
}

nvcc=${CUDA_HOME:+$CUDA_HOME/bin/nvcc}
[ -n "$nvcc" ] && [ -x "$nvcc" ] || nvcc=$(command -v nvcc || true)
[ -n "$nvcc" ] || nvcc=/usr/local/cuda/bin/nvcc
[ -x "$nvcc" ] || skip "no nvcc in CUDA_HOME, on the PATH or in /usr/local/cuda/bin"
command -v "${NVCC_CCBIN:-gcc}" >/dev/null || skip "nvcc needs a host compiler, and there is no gcc"

# Native code for what most people have, and PTX, which the driver compiles for all other GPUs. A single nvcc compiles
# for one architecture before it begins with the others, therefore one for each.
oldest=$("$nvcc" --list-gpu-arch | sed -n 's/^compute_\([0-9]*\)$/\1/p' | sort -n | head -n 1)
tools=$("$nvcc" --dryrun -ptx "$unit" -o "$parts/none.ptx" 2>&1 | sed -n 's/^#\$ _HERE_=//p')
compile() {
  "$nvcc" -std=c++17 -O3 -Werror all-warnings -I"$here" -I"$here/include" "$@"
}
mkdir "$parts"
compile -ptx -arch=compute_90 "$unit" -o "$parts/90.ptx" && compile -cubin -arch=sm_90 "$parts/90.ptx" -o "$parts/90.cubin" &
newest=$!
compile -cubin -arch=sm_80 "$unit" -o "$parts/80.cubin" &
older=$!
compile -ptx -arch="compute_$oldest" "$unit" -o "$parts/oldest.ptx" &
any=$!
compiling="$newest $older $any"
for part in $compiling; do wait "$part"; done
compiling=
"${tools:-$(dirname "$nvcc")}/fatbinary" --create="$fatbin.$$" -64 \
  --image3=kind=ptx,sm="$oldest",file="$parts/oldest.ptx" \
  --image3=kind=elf,sm=80,file="$parts/80.cubin" \
  --image3=kind=elf,sm=90,file="$parts/90.cubin" \
  --image3=kind=ptx,sm=90,file="$parts/90.ptx"
mv -f "$fatbin.$$" "$fatbin"
echo "$sum" > "$stamp"
