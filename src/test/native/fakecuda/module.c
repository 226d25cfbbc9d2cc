// Modules of any image, and "kernels": a few C functions by name; a launch of any other name does nothing.
#include "fake.h"

struct function;

struct module {
  struct context *context;
  char *text;                           // NULL for binaries, which have every name that is asked for
  struct function *functions;
};

struct function {
  struct module *module;
  char *name;
  const struct kernel *kernel;
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

// Until the word is at least so much: an abort flag, a semaphore.
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
    {"fake_fill", 3, {8, 8, 4}, fill},         // address, bytes, value
    {"fake_copy", 3, {8, 8, 8}, copy},         // target, source, bytes
    {"fake_add", 2, {8, 8}, add},              // address, what
    {"fake_store", 2, {8, 8}, store},          // address, value
    {"fake_spin", 2, {8, 8}, spin},            // address, least value
    {"fake_trap", 0, {0}, trap},
};

CUresult fake_kernel_run(const struct op *op, struct context *context) {
  return op->kernel ? op->kernel->run(context, op->args) : CUDA_SUCCESS;
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
  if (!*name || (module->text && !strstr(module->text, name))) return fake_fail(CUDA_ERROR_NOT_FOUND, "no kernel %s", name);
  struct function *made = calloc(1, sizeof *made);
  *made = (struct function){.module = module, .name = strdup(name), .max_dynamic_shared = 49152};
  for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
    if (!strcmp(kernels[i].name, name)) made->kernel = &kernels[i];
  }
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
  static const int values[] = {1024, 0, 0, 0, 32, 90, 90, 0};
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

// Known for the kernels above only; about others nobody can be asked, as of a driver that is older than this call.
API CUresult cuFuncGetParamInfo(struct function *function, size_t index, size_t *offset, size_t *size) {
  FUNCTION;
  if (!function->kernel) return CUDA_ERROR_NOT_SUPPORTED;
  if (index >= (size_t)function->kernel->arg_count) return CUDA_ERROR_INVALID_VALUE;
  if (offset) *offset = index * 8;
  if (size) *size = (size_t)function->kernel->arg_sizes[index];
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

// kernelParams: a pointer to each argument. extra: one block, each argument at a multiple of its size.
static CUresult read_args(const struct kernel *kernel, void **params, void **extra, uint64_t *args) {
  const unsigned char *block = NULL;
  size_t length = 0, offset = 0;
  for (void **at = extra; at && *at; at += 2) {
    if (*at == (void *)1) block = at[1];
    if (*at == (void *)2) length = *(size_t *)at[1];
  }
  for (int i = 0; i < kernel->arg_count; i++) {
    size_t size = (size_t)kernel->arg_sizes[i];
    if (block) {
      offset = (offset + size - 1) / size * size;
      if (offset + size > length) return fake_fail(CUDA_ERROR_INVALID_VALUE, "%s: too few bytes of arguments", kernel->name);
      memcpy(&args[i], block + offset, size);
      offset += size;
    } else {
      if (!params || !params[i]) return fake_fail(CUDA_ERROR_INVALID_VALUE, "%s: argument %d is missing", kernel->name, i);
      memcpy(&args[i], params[i], size);
    }
  }
  return CUDA_SUCCESS;
}

API CUresult cuLaunchKernel(struct function *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                            unsigned block_y, unsigned block_z, unsigned shared, void *handle, void **params, void **extra) {
  FUNCTION;
  struct stream *stream;
  result = fake_stream_resolve(handle, &stream, context);
  if (result) return result;
  if (function->module->context != stream->context || stream->context != context) {
    return fake_fail(CUDA_ERROR_INVALID_HANDLE, "%s: kernel, stream and current context are of different GPUs", function->name);
  }
  if (!grid_x || !grid_y || !grid_z || !block_x || !block_y || !block_z || grid_x > 2147483647u || grid_y > 65535 ||
      grid_z > 65535 || (uint64_t)block_x * block_y * block_z > 1024 || block_z > 64) {
    return fake_fail(CUDA_ERROR_INVALID_VALUE, "%s: %u blocks of %u threads", function->name, grid_x, block_x);
  }
  if ((int64_t)shared > function->max_dynamic_shared || (params && extra)) {
    return fake_fail(CUDA_ERROR_INVALID_VALUE, "%s: %u bytes of shared memory, or arguments given twice", function->name, shared);
  }
  struct op op = {.kind = OP_KERNEL, .kernel = function->kernel};
  result = function->kernel ? read_args(function->kernel, params, extra, op.args) : CUDA_SUCCESS;
  return result ? result : fake_enqueue(stream, &op, NULL);
}

API CUresult cuLaunchCooperativeKernel(struct function *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared, void *handle,
                                       void **params) {
  return cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, handle, params, NULL);
}
