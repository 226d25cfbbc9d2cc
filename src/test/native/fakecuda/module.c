// SPDX-License-Identifier: Apache-2.0
// Modules of any image, and "kernels": a few C functions by name; a launch of any other name does nothing.
#include "fake.h"

#include "emulation.h"
#include "races.h"

struct function;

struct module {
  struct context *context;
  char *text;                           // NULL for binaries, which have every name that is asked for
  struct function *functions;
};

struct function {
  struct module *module;
  char *name;
  struct kernel kernel;
  int max_dynamic_shared;
  struct function *next;
};

static void fill_bytes(unsigned char *bytes, uint64_t size, void *argument) { memset(bytes, *(int *)argument, size); }

static CUresult fill(struct context *context, const uint64_t *args) {
  int value = (int)args[2];
  return fake_touch(context, args[0], args[1], fill_bytes, &value);
}

static CUresult copy(struct context *context, const uint64_t *args) { return fake_move(context, args[0], args[1], args[2]); }

static void add_word(unsigned char *bytes, uint64_t size, void *argument) {
  if (size == 8) __atomic_fetch_add((uint64_t *)bytes, *(uint64_t *)argument, __ATOMIC_ACQ_REL);
}

static CUresult add(struct context *context, const uint64_t *args) {
  uint64_t value = args[1];
  return fake_touch(context, args[0], 8, add_word, &value);
}

static void store_word(unsigned char *bytes, uint64_t size, void *argument) {
  if (size == 8) __atomic_store_n((uint64_t *)bytes, *(uint64_t *)argument, __ATOMIC_RELEASE);
}

static CUresult store(struct context *context, const uint64_t *args) {
  uint64_t value = args[1];
  return fake_touch(context, args[0], 8, store_word, &value);
}

static void load_word(unsigned char *bytes, uint64_t size, void *argument) {
  if (size == 8) *(int64_t *)argument = __atomic_load_n((int64_t *)bytes, __ATOMIC_ACQUIRE);
}

// Waits until the word, an abort flag or a semaphore, is at least args[1].
static CUresult spin(struct context *context, const uint64_t *args) {
  for (int64_t found = 0;;) {
    CUresult result = fake_touch(context, args[0], 8, load_word, &found);
    if (result || found >= (int64_t)args[1]) return result;
    if (__atomic_load_n(&context->dead, __ATOMIC_ACQUIRE) || __atomic_load_n(&context->sticky, __ATOMIC_ACQUIRE)) return 0;
    fake_pause();
  }
}

static CUresult trap(struct context *context, const uint64_t *args) {
  (void)args;
  return fake_fail(CUDA_ERROR_ILLEGAL_ADDRESS, "GPU %d runs fake_trap", context->physical);
}

static const struct kernel kernels[] = {
    {"fake_fill", 3, {8, 8, 4}, fill, NULL, 0},   // address, bytes, value
    {"fake_copy", 3, {8, 8, 8}, copy, NULL, 0},   // target, source, bytes
    {"fake_add", 2, {8, 8}, add, NULL, 0},        // address, what
    {"fake_store", 2, {8, 8}, store, NULL, 0},    // address, value
    {"fake_spin", 2, {8, 8}, spin, NULL, 0},      // address, least value
    {"fake_trap", 0, {0}, trap, NULL, 0},
    {"fake_deep", 2, {8, 8}, store, NULL, 4096},  // fake_store with a large stack
};

static bool find(const char *name, struct kernel *found) {
  for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
    if (!strcmp(kernels[i].name, name)) {
      *found = kernels[i];
      return true;
    }
  }
  const struct emulated_kernel *emulated = emulation_find(name);
  if (emulated) {
    *found = (struct kernel){.name = emulated->name, .parameter_count = emulated->parameter_count, .emulated = emulated};
  }
  return emulated != NULL;
}

#define CURRENT                             \
  struct context *context;                  \
  CUresult result = fake_current(&context); \
  if (result) return result

API CUresult cuModuleLoadData(struct module **module, const void *image) {
  CURRENT;
  if (!image) return CUDA_ERROR_INVALID_VALUE;
  const unsigned char *bytes = image;
  bool binary = !memcmp(bytes, "\177ELF", 4) || !memcmp(bytes, "\x50\xed\x55\xba", 4);
  // Nothing but includes: the built-in kernels of a build without nvcc, as NVRTC is given them.
  binary |= !binary && strstr(image, "#include") && !strstr(image, "__global__");
  char *text = binary ? NULL : strdup(image);
  if (text && !strstr(text, "fake_") && !strstr(text, ".version") && !strstr(text, "__global__")) {
    free(text);
    return fake_fail(CUDA_ERROR_INVALID_IMAGE, "neither a cubin nor a fat binary nor PTX");
  }
  *module = calloc(1, sizeof **module);
  **module = (struct module){.context = context, .text = text};
  fake_handle_add(*module, HANDLE_MODULE);
  return CUDA_SUCCESS;
}

API CUresult cuModuleLoadDataEx(struct module **module, const void *image, unsigned count, int *options, void **values) {
  (void)options;
  (void)values;
  return count > 64 ? CUDA_ERROR_INVALID_VALUE : cuModuleLoadData(module, image);
}

API CUresult cuModuleLoadFatBinary(struct module **module, const void *image) { return cuModuleLoadData(module, image); }

API CUresult cuModuleUnload(struct module *module) {
  CURRENT;
  if (!fake_handle_remove(module, HANDLE_MODULE)) return fake_fail(CUDA_ERROR_INVALID_HANDLE, "%p is no module", (void *)module);
  for (struct function *next, *at = module->functions; at; at = next) {
    next = at->next;
    fake_handle_remove(at, HANDLE_FUNCTION);
    free(at->name);
    free(at);
  }
  free(module->text);
  free(module);
  return CUDA_SUCCESS;
}

API CUresult cuModuleGetFunction(struct function **function, struct module *module, const char *name) {
  CURRENT;
  if (!fake_handle_is(module, HANDLE_MODULE)) return fake_fail(CUDA_ERROR_INVALID_HANDLE, "%p is no module", (void *)module);
  if (module->context != context) return fake_fail(CUDA_ERROR_INVALID_HANDLE, "the module is of another context");
  struct kernel kernel = {0};
  find(name, &kernel);
  bool named = module->text ? strstr(module->text, name) != NULL : !emulation_is_on();
  if (!*name || (!named && !kernel.emulated)) return fake_fail(CUDA_ERROR_NOT_FOUND, "no kernel %s", name);
  struct function *made = calloc(1, sizeof *made);
  *made = (struct function){.module = module, .name = strdup(name), .kernel = kernel, .max_dynamic_shared = 49152};
  pthread_mutex_lock(&fake_lock);
  made->next = module->functions;
  module->functions = made;
  pthread_mutex_unlock(&fake_lock);
  fake_handle_add(made, HANDLE_FUNCTION);
  *function = made;
  return CUDA_SUCCESS;
}

#define FUNCTION                                                                                            \
  CURRENT;                                                                                                  \
  if (!fake_handle_is(function, HANDLE_FUNCTION))                                                           \
    return fake_fail(CUDA_ERROR_INVALID_HANDLE, "%p is no function, or its module was unloaded", (void *)function)

API CUresult cuFuncGetAttribute(int *value, int attribute, struct function *function) {
  FUNCTION;
  const struct emulated_kernel *emulated = function->kernel.emulated;
  int values[] = {1024, 0, 0, function->kernel.stack, 32, 90, 90, 0};
  if (emulated) {
    values[0] = emulated->max_threads;
    values[1] = emulated->static_shared;
  }
  *value = attribute == 8 ? function->max_dynamic_shared : attribute >= 0 && attribute < 8 ? values[attribute] : 0;
  return CUDA_SUCCESS;
}

API CUresult cuFuncSetAttribute(struct function *function, int attribute, int value) {
  FUNCTION;
  if (attribute == 8) {
    if (value < 0 || value > 232448) return fake_fail(CUDA_ERROR_INVALID_VALUE, "%d bytes of shared memory", value);
    function->max_dynamic_shared = value;
  } else if (attribute != 9) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

static size_t parameter_offset(const struct kernel *kernel, size_t index) {
  return kernel->emulated ? kernel->emulated->parameter_offsets[index] : index * 8;
}

static size_t parameter_size(const struct kernel *kernel, size_t index) {
  return kernel->emulated ? kernel->emulated->parameter_sizes[index] : kernel->parameter_sizes[index];
}

// Supported for known kernels only; for others it fails as in a driver that lacks this call.
API CUresult cuFuncGetParamInfo(struct function *function, size_t index, size_t *offset, size_t *size) {
  FUNCTION;
  const struct kernel *kernel = &function->kernel;
  if (!kernel->name) return CUDA_ERROR_NOT_SUPPORTED;
  if (index >= kernel->parameter_count) return CUDA_ERROR_INVALID_VALUE;
  if (offset) *offset = parameter_offset(kernel, index);
  if (size) *size = parameter_size(kernel, index);
  return CUDA_SUCCESS;
}

API CUresult cuFuncGetModule(struct module **module, struct function *function) {
  FUNCTION;
  *module = function->module;
  return CUDA_SUCCESS;
}

API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, struct function *function, int block_size,
                                                        size_t shared) {
  FUNCTION;
  if (block_size < 1 || block_size > 1024 || shared > 232448) return CUDA_ERROR_INVALID_VALUE;
  *blocks = 2048 / block_size;
  return CUDA_SUCCESS;
}

// kernelParams: a pointer to each parameter. extra: one block, each parameter at its offset.
static CUresult read_parameters(const struct kernel *kernel, void **params, void **extra, unsigned char *parameters) {
  const unsigned char *block = NULL;
  size_t length = 0, packed = 0;
  for (void **at = extra; at && *at; at += 2) {
    if (*at == (void *)1) block = at[1];
    if (*at == (void *)2) length = *(size_t *)at[1];
  }
  for (size_t i = 0; i < kernel->parameter_count; i++) {
    size_t size = parameter_size(kernel, i), offset = parameter_offset(kernel, i);
    if (block) {
      // The C functions take words of 8 bytes; the caller packs the block by sizes only.
      size_t from = kernel->emulated ? offset : (packed + size - 1) / size * size;
      packed = from + size;
      if (packed > length) return fake_fail(CUDA_ERROR_INVALID_VALUE, "%s: too few bytes of parameters", kernel->name);
      memcpy(parameters + offset, block + from, size);
    } else {
      if (!params || !params[i]) return fake_fail(CUDA_ERROR_INVALID_VALUE, "%s: parameter %zu is missing", kernel->name, i);
      memcpy(parameters + offset, params[i], size);
    }
  }
  return CUDA_SUCCESS;
}

CUresult fake_launch_make(struct launch **launch, struct function *function, const unsigned *grid, const unsigned *block,
                          unsigned shared, void **params, void **extra) {
  const struct kernel *kernel = &function->kernel;
  uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
  if (!grid[0] || !grid[1] || !grid[2] || !threads || grid[0] > 2147483647u || grid[1] > 65535 || grid[2] > 65535 ||
      block[0] > 1024 || block[1] > 1024 || block[2] > 64 || threads > 1024) {
    return fake_fail(CUDA_ERROR_INVALID_VALUE, "%s: %u blocks of %u threads", function->name, grid[0], block[0]);
  }
  if (kernel->emulated && threads > (uint64_t)kernel->emulated->max_threads) {
    return fake_fail(CUDA_ERROR_INVALID_VALUE, "%s: %u threads, its __launch_bounds__ allow %d", function->name,
                     (unsigned)threads, kernel->emulated->max_threads);
  }
  if ((int64_t)shared > function->max_dynamic_shared || (params && extra)) {
    return fake_fail(CUDA_ERROR_INVALID_VALUE, "%s: %u bytes of shared memory, or parameters given twice", function->name,
                     shared);
  }
  size_t last = kernel->parameter_count - 1;
  size_t size = kernel->parameter_count ? parameter_offset(kernel, last) + parameter_size(kernel, last) : 0;
  struct launch *made = calloc(1, sizeof *made);
  *made = (struct launch){.kernel = *kernel, .shared = shared};
  memcpy(made->grid, grid, sizeof made->grid);
  memcpy(made->block, block, sizeof made->block);
  made->parameters = aligned_alloc(64, (size + 64) / 64 * 64);
  memset(made->parameters, 0, (size + 64) / 64 * 64);
  if (kernel->emulated && races_wanted()) made->before = races_so_far();
  CUresult result = read_parameters(kernel, params, extra, made->parameters);
  if (result) fake_launch_free(made);
  else *launch = made;
  return result;
}

void fake_launch_free(struct launch *launch) {
  if (!launch) return;
  if (launch->before) {
    races_lock();
    races_forget(&launch->before);
    races_unlock();
  }
  free(launch->parameters);
  free(launch);
}

static bool stopped(void *context) { return fake_broken(context); }

CUresult fake_launch_run(const struct launch *launch, struct context *context) {
  if (launch->kernel.run) return launch->kernel.run(context, (const uint64_t *)launch->parameters);
  if (!launch->kernel.emulated) return CUDA_SUCCESS;
  char text[256];
  switch (emulation_run(launch->kernel.emulated, launch->grid, launch->block, launch->shared, launch->overlaps, launch->parameters,
                        context->physical, launch->before, stopped, context, text, sizeof text)) {
    case EMULATION_DONE:
    case EMULATION_STOPPED: return CUDA_SUCCESS;
    case EMULATION_FAULT: return fake_fail(CUDA_ERROR_ILLEGAL_ADDRESS, "GPU %d: %s", context->physical, text);
    default: return fake_fail(CUDA_ERROR_LAUNCH_FAILED, "GPU %d: %s", context->physical, text);
  }
}

static CUresult enqueue_launch(struct function *function, const unsigned *grid, const unsigned *block, unsigned shared,
                               bool overlaps, void *handle, void **params, void **extra) {
  FUNCTION;
  struct stream *stream;
  result = fake_stream_resolve(handle, &stream, context);
  if (result) return result;
  if (function->module->context != stream->context || stream->context != context) {
    return fake_fail(CUDA_ERROR_INVALID_HANDLE, "%s: kernel, stream and current context are of different GPUs", function->name);
  }
  struct op op = {.kind = OP_KERNEL};
  result = fake_launch_make(&op.launch, function, grid, block, shared, params, extra);
  if (result) return result;
  op.launch->overlaps = overlaps;
  if ((size_t)function->kernel.stack > fake_stack(stream->context)) {
    // As the driver does it: more room for stacks, once no kernel uses the old one.
    fake_streams_drain(stream->context);
    __atomic_store_n(&stream->context->stack, function->kernel.stack, __ATOMIC_RELEASE);
  }
  return fake_enqueue(stream, &op, NULL);
}

API CUresult cuLaunchKernel(struct function *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                            unsigned block_y, unsigned block_z, unsigned shared, void *handle, void **params, void **extra) {
  return enqueue_launch(function, (unsigned[]){grid_x, grid_y, grid_z}, (unsigned[]){block_x, block_y, block_z}, shared, false,
                        handle, params, extra);
}

// The config and its attributes as cuda.h has them.
struct launch_attribute {
  int id;
  union {
    char room[64];
    int number;
  } value __attribute__((aligned(8)));
};

struct launch_config {
  unsigned grid[3], block[3], shared;
  void *stream;
  struct launch_attribute *attributes;
  unsigned attribute_count;
};

enum { PROGRAMMATIC_STREAM_SERIALIZATION = 6 };

API CUresult cuLaunchKernelEx(const struct launch_config *config, struct function *function, void **params, void **extra) {
  bool overlaps = false;
  for (unsigned i = 0; i < config->attribute_count; i++) {
    if (config->attributes[i].id != PROGRAMMATIC_STREAM_SERIALIZATION) {
      return fake_fail(CUDA_ERROR_INVALID_VALUE, "%s: launch attribute %d", function->name, config->attributes[i].id);
    }
    overlaps = config->attributes[i].value.number;
  }
  return enqueue_launch(function, config->grid, config->block, config->shared, overlaps, config->stream, params, extra);
}

API CUresult cuLaunchCooperativeKernel(struct function *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared, void *handle,
                                       void **params) {
  return cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, handle, params, NULL);
}
