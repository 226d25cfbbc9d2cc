// SPDX-License-Identifier: Apache-2.0
// Copies and fills, enqueued or waited for.
#include "fake.h"

enum side { DEVICE_ONLY, HOST_ONLY, EITHER };

static CUresult check_side(struct context *context, enum side side, const char *what, uint64_t address, uint64_t size,
                           bool *pageable) {
  CUresult result = fake_check_span(context, what, address, size, side != DEVICE_ONLY, pageable);
  if (result || side != HOST_ONLY || *pageable) return result;
  pthread_mutex_lock(&fake_lock);
  struct range *range = fake_range_at(address);
  bool device = range && range->physical >= 0;
  pthread_mutex_unlock(&fake_lock);
  return device ? fake_fail(CUDA_ERROR_INVALID_VALUE, "%s is memory of a GPU, it must be of the host", what) : CUDA_SUCCESS;
}

struct out {
  unsigned char *at;
};

static void take(unsigned char *bytes, uint64_t size, void *argument) {
  struct out *out = argument;
  memcpy(out->at, bytes, size);
  out->at += size;
}

static CUresult copy(void *handle, uint64_t target, enum side target_side, uint64_t source, enum side source_side,
                     uint64_t size, bool wait) {
  struct context *context;
  struct stream *stream;
  CUresult result = fake_current(&context);
  if (!result) result = fake_stream_resolve(handle, &stream, context);
  if (result) return result;
  if (stream->context != context) return fake_fail(CUDA_ERROR_INVALID_HANDLE, "a copy on another context's stream");
  if (!size) return CUDA_SUCCESS;
  bool to_pageable = false, from_pageable = false;
  result = check_side(context, target_side, "copy's target", target, size, &to_pageable);
  if (!result) result = check_side(context, source_side, "copy's source", source, size, &from_pageable);
  if (result) return result;
  if (to_pageable) {  // such a copy waits, on a real driver too
    result = fake_capture_forbids(stream, "a copy to pageable memory");
    if (result) return result;
    uint64_t ticket;
    pthread_mutex_lock(&stream->lock);
    ticket = stream->enqueued;
    pthread_mutex_unlock(&stream->lock);
    result = fake_stream_wait(stream, ticket);
    if (result) return result;
    if (from_pageable) {
      memmove((void *)target, (void *)source, size);
      return CUDA_SUCCESS;
    }
    struct out out = {(unsigned char *)target};
    return fake_touch(context, source, size, take, &out);
  }
  struct op op = {.kind = OP_COPY, .target = target, .source = source, .size = size};
  if (from_pageable) {
    op.staged = malloc(size);
    memcpy(op.staged, (void *)source, size);
  }
  uint64_t ticket;
  result = fake_enqueue(stream, &op, &ticket);
  return wait && !result ? fake_stream_wait(stream, ticket) : result;
}

API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr target, const void *source, size_t size, void *stream) {
  return copy(stream, target, DEVICE_ONLY, (uint64_t)source, HOST_ONLY, size, false);
}

API CUresult cuMemcpyDtoHAsync_v2(void *target, CUdeviceptr source, size_t size, void *stream) {
  return copy(stream, (uint64_t)target, HOST_ONLY, source, DEVICE_ONLY, size, false);
}

API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr target, CUdeviceptr source, size_t size, void *stream) {
  return copy(stream, target, DEVICE_ONLY, source, DEVICE_ONLY, size, false);
}

API CUresult cuMemcpyAsync(CUdeviceptr target, CUdeviceptr source, size_t size, void *stream) {
  return copy(stream, target, EITHER, source, EITHER, size, false);
}

API CUresult cuMemcpyHtoD_v2(CUdeviceptr target, const void *source, size_t size) {
  return copy(NULL, target, DEVICE_ONLY, (uint64_t)source, HOST_ONLY, size, true);
}

API CUresult cuMemcpyDtoH_v2(void *target, CUdeviceptr source, size_t size) {
  return copy(NULL, (uint64_t)target, HOST_ONLY, source, DEVICE_ONLY, size, true);
}

API CUresult cuMemcpyDtoD_v2(CUdeviceptr target, CUdeviceptr source, size_t size) {
  return copy(NULL, target, DEVICE_ONLY, source, DEVICE_ONLY, size, true);
}

API CUresult cuMemcpy(CUdeviceptr target, CUdeviceptr source, size_t size) {
  return copy(NULL, target, EITHER, source, EITHER, size, true);
}

API CUresult cuMemcpyPeerAsync(CUdeviceptr target, struct context *to, CUdeviceptr source, struct context *from, size_t size,
                               void *stream) {
  if (!fake_handle_is(to, HANDLE_CONTEXT) || !fake_handle_is(from, HANDLE_CONTEXT)) return CUDA_ERROR_INVALID_CONTEXT;
  return copy(stream, target, DEVICE_ONLY, source, DEVICE_ONLY, size, false);
}

static CUresult fill(void *handle, uint64_t target, uint64_t size, enum op_kind kind, uint64_t value, bool wait) {
  struct context *context;
  struct stream *stream;
  CUresult result = fake_current(&context);
  if (!result) result = fake_stream_resolve(handle, &stream, context);
  if (result) return result;
  if (stream->context != context) return fake_fail(CUDA_ERROR_INVALID_HANDLE, "a fill on another context's stream");
  if (!size) return CUDA_SUCCESS;
  if (kind == OP_SET32 && target % 4) return CUDA_ERROR_INVALID_VALUE;
  result = fake_check_span(context, "fill's target", target, size, false, NULL);
  if (result) return result;
  uint64_t ticket;
  result = fake_enqueue(stream, &(struct op){.kind = kind, .target = target, .size = size, .value = value}, &ticket);
  return wait && !result ? fake_stream_wait(stream, ticket) : result;
}

API CUresult cuMemsetD8Async(CUdeviceptr target, unsigned char value, size_t count, void *stream) {
  return fill(stream, target, count, OP_SET8, value, false);
}

API CUresult cuMemsetD32Async(CUdeviceptr target, unsigned value, size_t count, void *stream) {
  return fill(stream, target, count * 4, OP_SET32, value, false);
}

API CUresult cuMemsetD8_v2(CUdeviceptr target, unsigned char value, size_t count) {
  return fill(NULL, target, count, OP_SET8, value, true);
}

API CUresult cuMemsetD32_v2(CUdeviceptr target, unsigned value, size_t count) {
  return fill(NULL, target, count * 4, OP_SET32, value, true);
}
