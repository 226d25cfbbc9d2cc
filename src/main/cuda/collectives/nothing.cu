// The kernel that does nothing: whether a launch works, and what it costs.
extern "C" __global__ void fluxccl_nothing() {}
