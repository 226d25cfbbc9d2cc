// SPDX-License-Identifier: Apache-2.0
// The kernels of fused all-reduces with the library's own epilogues.
#include "add_rms_norm.cuh"
#include "fused_rows.cuh"

FLUXCCL_FUSED_KERNELS(norm, fluxccl::collectives::AddRmsNorm, argument)
FLUXCCL_FUSED_KERNELS(normQuantized, fluxccl::collectives::AddRmsNormQuantized, argument)
