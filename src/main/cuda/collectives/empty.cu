// SPDX-License-Identifier: Apache-2.0
// An empty kernel, to check that a launch works and to measure its cost.
extern "C" __global__ void fluxccl_empty() {}
