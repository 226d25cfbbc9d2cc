#!/bin/sh
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
trap 'rm -f "$unit.$$" "$fatbin.$$"' EXIT

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

# Native code for what most people have, and PTX, which the driver compiles for all other GPUs.
oldest=$("$nvcc" --list-gpu-arch | sed -n 's/^compute_\([0-9]*\)$/\1/p' | sort -n | head -n 1)
"$nvcc" -fatbin -std=c++17 -O3 -Werror all-warnings --threads 2 \
  -gencode "arch=compute_$oldest,code=compute_$oldest" \
  -gencode arch=compute_80,code=sm_80 \
  -gencode "arch=compute_90,code=[sm_90,compute_90]" \
  -I"$here" -I"$here/include" "$unit" -o "$fatbin.$$"
mv -f "$fatbin.$$" "$fatbin"
echo "$sum" > "$stamp"
