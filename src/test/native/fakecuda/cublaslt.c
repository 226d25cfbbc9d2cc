// SPDX-License-Identifier: Apache-2.0
// A cuBLASLt whose product is the kernel plain_product of src/test/resources/cuda/product.cu, which runs where kernels
// do. Of the two algorithms that it offers, the first, which splits sums, must not be taken. For few rows of 512 floats or
// more it offers only such.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

enum { SUCCESS = 0, INVALID_VALUE = 7, NOT_SUPPORTED = 15, INTERNAL_ERROR = 14 };
enum { MOST_ATTRIBUTES = 16 };

// The functions of cuda.h that this file calls.
int cuModuleLoadData(void **module, const void *image);
int cuModuleUnload(void *module);
int cuModuleGetFunction(void **function, void *module, const char *name);
int cuLaunchKernel(void *function, unsigned grid, unsigned grid_y, unsigned grid_z, unsigned block, unsigned block_y,
                   unsigned block_z, unsigned shared, void *stream, void **parameters, void **extra);

struct handle {
  void *module;
  void *function;
};

struct layout {
  int type;
  uint64_t rows, cols;
  int64_t stride;
};

struct attributes {
  uint64_t values[MOST_ATTRIBUTES];
};

struct algorithm {
  uint64_t split, rest[7];
};

struct candidate {
  struct algorithm algorithm;
  size_t workspace;
  int status;
  float waves;
  int reserved[4];
};

API size_t cublasLtGetVersion(void) { return 139900; }

API const char *cublasLtGetStatusString(int status) {
  return status == NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED" : status ? "CUBLAS_STATUS_INVALID_VALUE" : "CUBLAS_STATUS_SUCCESS";
}

API int cublasLtCreate(struct handle **made) {
  struct handle *handle = calloc(1, sizeof *handle);
  if (cuModuleLoadData(&handle->module, "__global__ plain_product") || cuModuleGetFunction(&handle->function, handle->module, "plain_product")) {
    free(handle);
    return INTERNAL_ERROR;
  }
  *made = handle;
  return SUCCESS;
}

API int cublasLtDestroy(struct handle *handle) {
  int result = cuModuleUnload(handle->module);
  free(handle);
  return result ? INTERNAL_ERROR : SUCCESS;
}

static int set(struct attributes *attributes, int attribute, const void *value, size_t size) {
  if (attribute < 0 || attribute >= MOST_ATTRIBUTES || size > 8) return INVALID_VALUE;
  memcpy(&attributes->values[attribute], value, size);
  return SUCCESS;
}

API int cublasLtMatmulDescCreate(struct attributes **desc, int compute, int scale) {
  *desc = calloc(1, sizeof **desc);
  return compute == 68 && scale == 0 ? SUCCESS : INVALID_VALUE;
}

API int cublasLtMatmulDescDestroy(struct attributes *desc) { return free(desc), SUCCESS; }

API int cublasLtMatmulDescSetAttribute(struct attributes *desc, int attribute, const void *value, size_t size) {
  return attribute == 3 && size == 4 ? set(desc, attribute, value, size) : INVALID_VALUE;
}

API int cublasLtMatrixLayoutCreate(struct layout **layout, int type, uint64_t rows, uint64_t cols, int64_t stride) {
  *layout = malloc(sizeof **layout);
  **layout = (struct layout){type, rows, cols, stride};
  return rows && cols && stride == (int64_t)rows ? SUCCESS : INVALID_VALUE;
}

API int cublasLtMatrixLayoutDestroy(struct layout *layout) { return free(layout), SUCCESS; }

API int cublasLtMatmulPreferenceCreate(struct attributes **preference) {
  *preference = calloc(1, sizeof **preference);
  return SUCCESS;
}

API int cublasLtMatmulPreferenceDestroy(struct attributes *preference) { return free(preference), SUCCESS; }

API int cublasLtMatmulPreferenceSetAttribute(struct attributes *preference, int attribute, const void *value, size_t size) {
  return size == (attribute == 1 ? 8 : 4) ? set(preference, attribute, value, size) : INVALID_VALUE;
}

static int check(const struct attributes *desc, const struct layout *a, const struct layout *b, const struct layout *d) {
  int transposed = desc->values[3] == 1;
  return transposed && a->rows == b->rows && a->cols == d->rows && b->cols == d->cols && a->type == b->type ? SUCCESS : INVALID_VALUE;
}

API int cublasLtMatmulAlgoGetHeuristic(struct handle *handle, struct attributes *desc, struct layout *a, struct layout *b,
                                       struct layout *c, struct layout *d, struct attributes *preference, int wanted,
                                       struct candidate *candidates, int *found) {
  if (!handle || c != d || wanted < 2) return INVALID_VALUE;
  *found = preference->values[5] == 16 && preference->values[8] == 16 && preference->values[1] ? 2 : 0;
  candidates[0] = (struct candidate){.algorithm = {.split = 4}};
  int splits_all = a->type == 0 && a->cols >= 512 && b->cols < 64;
  candidates[1] = (struct candidate){.algorithm = {.split = splits_all ? 2 : 1}};
  return check(desc, a, b, d);
}

API int cublasLtMatmulAlgoCheck(struct handle *handle, struct attributes *desc, struct layout *a, struct layout *b,
                                struct layout *c, struct layout *d, const struct algorithm *algorithm, struct candidate *result) {
  *result = (struct candidate){.algorithm = *algorithm};
  return handle && c == d ? check(desc, a, b, d) : INVALID_VALUE;
}

API int cublasLtMatmulAlgoConfigGetAttribute(const struct algorithm *algorithm, int attribute, void *value, size_t size,
                                             size_t *written) {
  if (size != 4) return INVALID_VALUE;
  *(int *)value = attribute == 2 ? (int)algorithm->split : 0;
  *written = size;
  return SUCCESS;
}

API int cublasLtMatmul(struct handle *handle, struct attributes *desc, const float *alpha, const void *a, struct layout *a_layout,
                       const void *b, struct layout *b_layout, const float *beta, const void *c, struct layout *c_layout, void *d,
                       struct layout *d_layout, const struct algorithm *algorithm, void *workspace, size_t workspace_size,
                       void *stream) {
  if (*alpha != 1 || *beta != 0 || c != d || c_layout != d_layout || algorithm->split != 1 || !workspace || !workspace_size) {
    return INVALID_VALUE;
  }
  int status = check(desc, a_layout, b_layout, d_layout);
  if (status) return status;
  int type = a_layout->type, out_type = d_layout->type, outputs = (int)a_layout->cols, inputs = (int)a_layout->rows;
  void *parameters[] = {&type, &out_type, &outputs, &inputs, &b, &a, &d};
  return cuLaunchKernel(handle->function, (unsigned)b_layout->cols, 1, 1, 64, 1, 1, 0, stream, parameters, NULL)
             ? INTERNAL_ERROR
             : SUCCESS;
}
