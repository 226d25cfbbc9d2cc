// SPDX-License-Identifier: Apache-2.0
/* NVIDIA's matrix multiplication. The library is opened by a path that Java found. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "jni_support.h"

/* Constants and types of cublasLt.h, which a machine need not have. */
enum { SUCCESS = 0, ALLOC_FAILED = 3, NOT_SUPPORTED = 15 };
enum { COMPUTE_32F = 68, TYPE_32F = 0 };
enum { OPERATION_TRANSPOSED = 1 };
enum { DESC_TRANSPOSE_A = 3 };
enum { PREFER_WORKSPACE = 1, PREFER_REDUCTION = 3, PREFER_ALIGNMENT_A = 5, PREFER_ALIGNMENT_D = 8 };
enum { CONFIG_SPLIT_K = 2, CONFIG_REDUCTION = 3 };
enum { ALIGNMENT = 16, CANDIDATES = 32, MANY_ROWS = 1024 };

typedef struct {
  uint64_t data[8];
} Algorithm;

typedef struct {
  Algorithm algorithm;
  size_t workspace;
  int status;
  float waves;
  int reserved[4];
} Candidate;

typedef struct {
  void *library;
  size_t (*version)(void);
  const char *(*statusString)(int);
  int (*create)(void **handle);
  int (*destroy)(void *handle);
  int (*descCreate)(void **desc, int compute, int scale);
  int (*descDestroy)(void *desc);
  int (*descSet)(void *desc, int attribute, const void *value, size_t size);
  int (*layoutCreate)(void **layout, int type, uint64_t rows, uint64_t cols, int64_t stride);
  int (*layoutDestroy)(void *layout);
  int (*preferenceCreate)(void **preference);
  int (*preferenceDestroy)(void *preference);
  int (*preferenceSet)(void *preference, int attribute, const void *value, size_t size);
  int (*heuristic)(void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference,
                   int wanted, Candidate *candidates, int *found);
  int (*check)(void *handle, void *desc, void *a, void *b, void *c, void *d,
               const Algorithm *algorithm, Candidate *result);
  int (*configGet)(const Algorithm *algorithm, int attribute, void *value, size_t size,
                   size_t *written);
  int (*multiply)(void *handle, void *desc, const void *alpha, const void *a, void *a_layout,
                  const void *b, void *b_layout, const void *beta, const void *c, void *c_layout,
                  void *d, void *d_layout, const Algorithm *algorithm, void *workspace,
                  size_t workspace_size, void *stream);
} Lt;

/* How products with one matrix of weights are computed. Immutable once it is chosen. */
typedef struct {
  const Lt *lt;
  void *handle;
  void *desc;
  void *weights;
  Algorithm algorithm;
  uint64_t inputs;
  uint64_t outputs;
  int in_type;
  int out_type;
  size_t workspace;
} Plan;

static void throw_text(JNIEnv *env, const char *text) {
  jclass type = (*env)->FindClass(env, "java/lang/UnsatisfiedLinkError");
  if (type != NULL) {
    (*env)->ThrowNew(env, type, text == NULL ? "unknown" : text);
  }
}

static int find_functions(Lt *lt) {
  struct {
    void *target;
    const char *name;
  } wanted[] = {
      {&lt->version, "cublasLtGetVersion"},
      {&lt->statusString, "cublasLtGetStatusString"},
      {&lt->create, "cublasLtCreate"},
      {&lt->destroy, "cublasLtDestroy"},
      {&lt->descCreate, "cublasLtMatmulDescCreate"},
      {&lt->descDestroy, "cublasLtMatmulDescDestroy"},
      {&lt->descSet, "cublasLtMatmulDescSetAttribute"},
      {&lt->layoutCreate, "cublasLtMatrixLayoutCreate"},
      {&lt->layoutDestroy, "cublasLtMatrixLayoutDestroy"},
      {&lt->preferenceCreate, "cublasLtMatmulPreferenceCreate"},
      {&lt->preferenceDestroy, "cublasLtMatmulPreferenceDestroy"},
      {&lt->preferenceSet, "cublasLtMatmulPreferenceSetAttribute"},
      {&lt->heuristic, "cublasLtMatmulAlgoGetHeuristic"},
      {&lt->check, "cublasLtMatmulAlgoCheck"},
      {&lt->configGet, "cublasLtMatmulAlgoConfigGetAttribute"},
      {&lt->multiply, "cublasLtMatmul"},
  };
  for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
    void *function = dlsym(lt->library, wanted[i].name);
    if (function == NULL) {
      return 0;
    }
    memcpy(wanted[i].target, &function, sizeof function);
  }
  return 1;
}

/*
 * Opens the library for the life of the process; throws UnsatisfiedLinkError with the loader's
 * message.
 */
JNIEXPORT jlong JNICALL Java_io_fluxccl_matmul_CublasLtCalls_open(JNIEnv *env, jclass type,
                                                                       jbyteArray path) {
  (void)type;
  char *text = fluxccl_copy_bytes(env, path);
  if (text == NULL) {
    return 0;
  }
  Lt *lt = calloc(1, sizeof *lt);
  if (lt == NULL) {
    free(text);
    fluxccl_throw_out_of_memory(env);
    return 0;
  }
  lt->library = dlopen(text, RTLD_NOW | RTLD_LOCAL);
  free(text);
  if (lt->library != NULL && find_functions(lt)) {
    return (jlong)(intptr_t)lt;
  }
  throw_text(env, dlerror());
  if (lt->library != NULL) {
    dlclose(lt->library);
  }
  free(lt);
  return 0;
}

/* Returns its version as one number: 130100 is 13.1.0. */
JNIEXPORT jlong JNICALL Java_io_fluxccl_matmul_CublasLtCalls_version(JNIEnv *env, jclass type,
                                                                          jlong library) {
  (void)env;
  (void)type;
  return (jlong)((const Lt *)(intptr_t)library)->version();
}

JNIEXPORT jbyteArray JNICALL Java_io_fluxccl_matmul_CublasLtCalls_describe(JNIEnv *env,
                                                                                jclass type,
                                                                                jlong library,
                                                                                jint status) {
  (void)type;
  const char *text = ((const Lt *)(intptr_t)library)->statusString(status);
  return fluxccl_new_bytes(env, text == NULL ? "" : text, text == NULL ? 0 : strlen(text));
}

/* Stores a handle of the current context into result[0]; a cublasStatus_t. */
JNIEXPORT jint JNICALL Java_io_fluxccl_matmul_CublasLtCalls_create(JNIEnv *env, jclass type,
                                                                        jlong library,
                                                                        jlongArray result) {
  (void)type;
  void *handle = NULL;
  int status = ((const Lt *)(intptr_t)library)->create(&handle);
  put_long(env, result, (jlong)(intptr_t)handle);
  return status;
}

JNIEXPORT jint JNICALL Java_io_fluxccl_matmul_CublasLtCalls_destroy(JNIEnv *env, jclass type,
                                                                         jlong library,
                                                                         jlong handle) {
  (void)env;
  (void)type;
  return ((const Lt *)(intptr_t)library)->destroy((void *)(intptr_t)handle);
}

/*
 * The layouts of one call. Matrices here are column by column, so ours are transposed: the result,
 * outputs x rows, is weights^T (inputs x outputs, transposed) times in (inputs x rows).
 */
typedef struct {
  void *in;
  void *out;
} Layouts;

static void free_layouts(const Plan *plan, Layouts *layouts) {
  if (layouts->in != NULL) {
    plan->lt->layoutDestroy(layouts->in);
  }
  if (layouts->out != NULL) {
    plan->lt->layoutDestroy(layouts->out);
  }
}

static int make_layouts(const Plan *plan, uint64_t rows, Layouts *layouts) {
  layouts->in = NULL;
  layouts->out = NULL;
  int status = plan->lt->layoutCreate(&layouts->in, plan->in_type, plan->inputs, rows,
                                      (int64_t)plan->inputs);
  if (status == SUCCESS) {
    status = plan->lt->layoutCreate(&layouts->out, plan->out_type, plan->outputs, rows,
                                    (int64_t)plan->outputs);
  }
  return status;
}

static int check_algorithm(const Plan *plan, const Layouts *layouts, const Algorithm *algorithm) {
  Candidate result;
  memset(&result, 0, sizeof result);
  int status = plan->lt->check(plan->handle, plan->desc, plan->weights, layouts->in, layouts->out,
                               layouts->out, algorithm, &result);
  if (status == SUCCESS) {
    status = result.status;
  }
  return status == SUCCESS && result.workspace > plan->workspace ? NOT_SUPPORTED : status;
}

/* Whether each sum over the inputs is made by one block, in one order. */
static int is_whole(const Plan *plan, const Algorithm *algorithm) {
  int32_t split_k = 0;
  uint32_t reduction = 0;
  size_t written = 0;
  if (plan->lt->configGet(algorithm, CONFIG_SPLIT_K, &split_k, sizeof split_k, &written) !=
          SUCCESS ||
      plan->lt->configGet(algorithm, CONFIG_REDUCTION, &reduction, sizeof reduction, &written) !=
          SUCCESS) {
    return 0;
  }
  return split_k >= 0 && split_k <= 1 && reduction == 0;
}

static int make_preference(const Plan *plan, void **preference) {
  const Lt *lt = plan->lt;
  uint64_t workspace = plan->workspace;
  uint32_t none = 0;
  uint32_t alignment = ALIGNMENT;
  int status = lt->preferenceCreate(preference);
  if (status == SUCCESS) {
    status = lt->preferenceSet(*preference, PREFER_WORKSPACE, &workspace, sizeof workspace);
  }
  if (status == SUCCESS) {
    status = lt->preferenceSet(*preference, PREFER_REDUCTION, &none, sizeof none);
  }
  for (int which = PREFER_ALIGNMENT_A; status == SUCCESS && which <= PREFER_ALIGNMENT_D; which++) {
    status = lt->preferenceSet(*preference, which, &alignment, sizeof alignment);
  }
  return status;
}

/* Whether an algorithm can do that many rows. */
static int can_do(const Plan *plan, const Algorithm *algorithm, uint64_t rows) {
  Layouts layouts;
  int status = make_layouts(plan, rows, &layouts);
  if (status == SUCCESS) {
    status = check_algorithm(plan, &layouts, algorithm);
  }
  free_layouts(plan, &layouts);
  return status == SUCCESS;
}

/* Takes the best algorithm that is proposed for some rows and can do any number of them. */
static int choose_for(Plan *plan, uint64_t rows, uint64_t typical, void *preference) {
  Candidate candidates[CANDIDATES];
  memset(candidates, 0, sizeof candidates);
  int found = 0;
  Layouts layouts;
  int status = make_layouts(plan, rows, &layouts);
  if (status == SUCCESS) {
    status = plan->lt->heuristic(plan->handle, plan->desc, plan->weights, layouts.in, layouts.out,
                                 layouts.out, preference, CANDIDATES, candidates, &found);
  }
  free_layouts(plan, &layouts);
  if (status != SUCCESS) {
    return status;
  }
  for (int i = 0; i < found; i++) {
    const Algorithm *algorithm = &candidates[i].algorithm;
    if (candidates[i].status == SUCCESS && is_whole(plan, algorithm) &&
        can_do(plan, algorithm, 1) && can_do(plan, algorithm, typical) &&
        can_do(plan, algorithm, MANY_ROWS)) {
      plan->algorithm = *algorithm;
      return SUCCESS;
    }
  }
  return NOT_SUPPORTED;
}

/*
 * Chooses for the typical number of rows, or else for others: for few rows of 32-bit floats, all
 * that is proposed splits the sums or is for a vector only.
 */
static int choose(Plan *plan, uint64_t rows) {
  const uint64_t tried[] = {rows, 64, 256, MANY_ROWS};
  void *preference = NULL;
  int status = make_preference(plan, &preference);
  if (status == SUCCESS) {
    status = NOT_SUPPORTED;
    for (size_t i = 0; i < sizeof tried / sizeof tried[0] && status == NOT_SUPPORTED; i++) {
      status = choose_for(plan, tried[i], rows, preference);
    }
  }
  if (preference != NULL) {
    plan->lt->preferenceDestroy(preference);
  }
  return status;
}

static void free_plan(Plan *plan) {
  if (plan->weights != NULL) {
    plan->lt->layoutDestroy(plan->weights);
  }
  if (plan->desc != NULL) {
    plan->lt->descDestroy(plan->desc);
  }
  free(plan);
}

/* Stores a plan into result[0]; a cublasStatus_t. */
JNIEXPORT jint JNICALL Java_io_fluxccl_matmul_CublasLtCalls_plan(
    JNIEnv *env, jclass type, jlong library, jlong handle, jint in_type, jint out_type,
    jlong inputs, jlong outputs, jlong rows, jlong workspace, jlongArray result) {
  (void)type;
  Plan *plan = calloc(1, sizeof *plan);
  if (plan == NULL) {
    return ALLOC_FAILED;
  }
  const Lt *lt = (const Lt *)(intptr_t)library;
  plan->lt = lt;
  plan->handle = (void *)(intptr_t)handle;
  plan->inputs = (uint64_t)inputs;
  plan->outputs = (uint64_t)outputs;
  plan->in_type = in_type;
  plan->out_type = out_type;
  plan->workspace = (size_t)workspace;
  int32_t transposed = OPERATION_TRANSPOSED;
  int status = lt->descCreate(&plan->desc, COMPUTE_32F, TYPE_32F);
  if (status == SUCCESS) {
    status = lt->descSet(plan->desc, DESC_TRANSPOSE_A, &transposed, sizeof transposed);
  }
  if (status == SUCCESS) {
    status = lt->layoutCreate(&plan->weights, in_type, plan->inputs, plan->outputs,
                              (int64_t)plan->inputs);
  }
  if (status == SUCCESS) {
    status = choose(plan, (uint64_t)rows);
  }
  if (status != SUCCESS) {
    free_plan(plan);
    return status;
  }
  put_long(env, result, (jlong)(intptr_t)plan);
  return SUCCESS;
}

JNIEXPORT void JNICALL Java_io_fluxccl_matmul_CublasLtCalls_freePlan(JNIEnv *env, jclass type,
                                                                          jlong plan) {
  (void)env;
  (void)type;
  free_plan((Plan *)(intptr_t)plan);
}

/* Enqueues one product; addresses are device addresses. Returns a cublasStatus_t. */
JNIEXPORT jint JNICALL Java_io_fluxccl_matmul_CublasLtCalls_multiply(
    JNIEnv *env, jclass type, jlong plan_address, jlong rows, jlong in, jlong weights, jlong out,
    jlong workspace, jlong stream) {
  (void)env;
  (void)type;
  const Plan *plan = (const Plan *)(intptr_t)plan_address;
  const float one = 1;
  const float zero = 0;
  Layouts layouts;
  int status = make_layouts(plan, (uint64_t)rows, &layouts);
  if (status == SUCCESS) {
    status = check_algorithm(plan, &layouts, &plan->algorithm);
  }
  if (status == SUCCESS) {
    void *target = (void *)(intptr_t)out;
    status = plan->lt->multiply(plan->handle, plan->desc, &one, (const void *)(intptr_t)weights,
                                plan->weights, (const void *)(intptr_t)in, layouts.in, &zero,
                                target, layouts.out, target, layouts.out, &plan->algorithm,
                                (void *)(intptr_t)workspace, plan->workspace,
                                (void *)(intptr_t)stream);
  }
  free_layouts(plan, &layouts);
  return status;
}
