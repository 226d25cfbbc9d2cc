// SPDX-License-Identifier: Apache-2.0
// All of FluxCCL's device API, but for epilogue.cuh.
#pragma once

#include "atomics.cuh"
#include "config.cuh"
#include "copy.cuh"
#include "device_handle.cuh"
#include "device_syncer.cuh"
#include "fifo.cuh"
#include "packed_product.cuh"
#include "packet.cuh"
#include "poll.cuh"
#include "proxy_channel.cuh"
#include "ptx.cuh"
#include "semaphore.cuh"
#include "sm_channel.cuh"
#include "trigger.cuh"
