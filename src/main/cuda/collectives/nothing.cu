// SPDX-License-Identifier: Apache-2.0
// A kernel that does nothing. It shows whether a launch works, and what a launch costs.
extern "C" __global__ void fluxccl_nothing() {}
