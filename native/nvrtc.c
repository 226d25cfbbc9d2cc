// SPDX-License-Identifier: Apache-2.0
/* NVIDIA's run-time compiler. The library is opened by a path that Java found. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "jni_support.h"

enum { NVRTC_SUCCESS = 0, NVRTC_OUT_OF_MEMORY = 1 };

typedef void *Program;

typedef struct {
  void *library;
  int (*version)(int *major, int *minor);
  int (*archCount)(int *count);
  int (*archs)(int *archs);
  int (*create)(Program *, const char *source, const char *name, int count, const char *const *headers,
                const char *const *names);
  int (*destroy)(Program *);
  int (*compile)(Program, int count, const char *const *options);
  int (*logSize)(Program, size_t *);
  int (*log)(Program, char *);
  int (*ptxSize)(Program, size_t *);
  int (*ptx)(Program, char *);
  int (*cubinSize)(Program, size_t *);
  int (*cubin)(Program, char *);
  const char *(*errorString)(int);
} Nvrtc;

static void throw_text(JNIEnv *env, const char *text) {
  jclass type = (*env)->FindClass(env, "java/lang/UnsatisfiedLinkError");
  if (type != NULL) {
    (*env)->ThrowNew(env, type, text == NULL ? "unknown" : text);
  }
}

static int find_functions(Nvrtc *nvrtc) {
  struct {
    void *target;
    const char *name;
  } wanted[] = {
      {&nvrtc->version, "nvrtcVersion"},
      {&nvrtc->archCount, "nvrtcGetNumSupportedArchs"},
      {&nvrtc->archs, "nvrtcGetSupportedArchs"},
      {&nvrtc->create, "nvrtcCreateProgram"},
      {&nvrtc->destroy, "nvrtcDestroyProgram"},
      {&nvrtc->compile, "nvrtcCompileProgram"},
      {&nvrtc->logSize, "nvrtcGetProgramLogSize"},
      {&nvrtc->log, "nvrtcGetProgramLog"},
      {&nvrtc->ptxSize, "nvrtcGetPTXSize"},
      {&nvrtc->ptx, "nvrtcGetPTX"},
      {&nvrtc->cubinSize, "nvrtcGetCUBINSize"},
      {&nvrtc->cubin, "nvrtcGetCUBIN"},
      {&nvrtc->errorString, "nvrtcGetErrorString"},
  };
  for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
    void *function = dlsym(nvrtc->library, wanted[i].name);
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
JNIEXPORT jlong JNICALL Java_io_fluxccl_device_cuda_Nvrtc_open(JNIEnv *env, jclass type,
                                                               jbyteArray path) {
  (void)type;
  char *text = fluxccl_copy_bytes(env, path);
  if (text == NULL) {
    return 0;
  }
  Nvrtc *nvrtc = calloc(1, sizeof *nvrtc);
  if (nvrtc == NULL) {
    free(text);
    fluxccl_throw_out_of_memory(env);
    return 0;
  }
  nvrtc->library = dlopen(text, RTLD_NOW | RTLD_LOCAL);
  free(text);
  if (nvrtc->library != NULL && find_functions(nvrtc)) {
    return (jlong)(intptr_t)nvrtc;
  }
  throw_text(env, dlerror());
  if (nvrtc->library != NULL) {
    dlclose(nvrtc->library);
  }
  free(nvrtc);
  return 0;
}

/*
 * Loads another library for the life of the process. NVRTC looks for its own part by name only, and
 * then finds this one. Returns whether the library was loaded.
 */
JNIEXPORT jboolean JNICALL Java_io_fluxccl_device_cuda_Nvrtc_preload(JNIEnv *env, jclass type,
                                                                     jbyteArray path) {
  (void)type;
  char *text = fluxccl_copy_bytes(env, path);
  if (text == NULL) {
    return JNI_FALSE;
  }
  void *library = dlopen(text, RTLD_NOW | RTLD_LOCAL);
  free(text);
  return library == NULL ? JNI_FALSE : JNI_TRUE;
}

/* Returns the path of the library, or an empty array. */
JNIEXPORT jbyteArray JNICALL Java_io_fluxccl_device_cuda_Nvrtc_path(JNIEnv *env, jclass type,
                                                                    jlong library) {
  (void)type;
  const Nvrtc *nvrtc = (const Nvrtc *)(intptr_t)library;
  Dl_info info;
  void *function;
  memcpy(&function, &nvrtc->version, sizeof function);
  if (dladdr(function, &info) == 0 || info.dli_fname == NULL) {
    return fluxccl_new_bytes(env, "", 0);
  }
  return fluxccl_new_bytes(env, info.dli_fname, strlen(info.dli_fname));
}

/* Stores major and minor version into result[0] and [1]. */
JNIEXPORT jint JNICALL Java_io_fluxccl_device_cuda_Nvrtc_version(JNIEnv *env, jclass type,
                                                                 jlong library, jintArray result) {
  (void)type;
  const Nvrtc *nvrtc = (const Nvrtc *)(intptr_t)library;
  int major = 0;
  int minor = 0;
  int status = nvrtc->version(&major, &minor);
  jint values[2] = {major, minor};
  (*env)->SetIntArrayRegion(env, result, 0, 2, values);
  return status;
}

/* Returns the architectures for which it compiles, such as 90; empty if it does not report them. */
JNIEXPORT jintArray JNICALL Java_io_fluxccl_device_cuda_Nvrtc_architectures(JNIEnv *env,
                                                                            jclass type,
                                                                            jlong library) {
  (void)type;
  const Nvrtc *nvrtc = (const Nvrtc *)(intptr_t)library;
  int count = 0;
  if (nvrtc->archCount(&count) != NVRTC_SUCCESS || count < 0) {
    count = 0;
  }
  int *archs = calloc((size_t)count + 1, sizeof *archs);
  if (archs == NULL) {
    fluxccl_throw_out_of_memory(env);
    return NULL;
  }
  if (count > 0 && nvrtc->archs(archs) != NVRTC_SUCCESS) {
    count = 0;
  }
  jintArray result = (*env)->NewIntArray(env, count);
  if (result != NULL) {
    (*env)->SetIntArrayRegion(env, result, 0, count, archs);
  }
  free(archs);
  return result;
}

JNIEXPORT jbyteArray JNICALL Java_io_fluxccl_device_cuda_Nvrtc_describe(JNIEnv *env, jclass type,
                                                                        jlong library,
                                                                        jint status) {
  (void)type;
  const Nvrtc *nvrtc = (const Nvrtc *)(intptr_t)library;
  const char *text = nvrtc->errorString(status);
  return fluxccl_new_bytes(env, text == NULL ? "" : text, text == NULL ? 0 : strlen(text));
}

/* Converts a byte[][] to C strings. */
typedef struct {
  int count;
  char **texts;
} Strings;

static void free_strings(Strings *strings) {
  for (int i = 0; i < strings->count; i++) {
    free(strings->texts[i]);
  }
  free(strings->texts);
}

static int copy_strings(JNIEnv *env, jobjectArray arrays, Strings *strings) {
  jsize count = (*env)->GetArrayLength(env, arrays);
  strings->count = 0;
  strings->texts = calloc((size_t)count + 1, sizeof *strings->texts);
  if (strings->texts == NULL) {
    fluxccl_throw_out_of_memory(env);
    return 0;
  }
  for (jsize i = 0; i < count; i++) {
    jbyteArray bytes = (*env)->GetObjectArrayElement(env, arrays, i);
    char *text = fluxccl_copy_bytes(env, bytes);
    (*env)->DeleteLocalRef(env, bytes);
    if (text == NULL) {
      return 0;
    }
    strings->texts[strings->count++] = text;
  }
  return 1;
}

/* Stores what a pair of size and content functions returns into an element of the result. */
static int fetch(JNIEnv *env, Program program, int (*size_of)(Program, size_t *),
                 int (*content_of)(Program, char *), jobjectArray result, jsize index) {
  size_t size = 0;
  int status = size_of(program, &size);
  if (status != NVRTC_SUCCESS || size == 0) {
    return status;
  }
  char *content = calloc(1, size);
  if (content == NULL) {
    return NVRTC_OUT_OF_MEMORY;
  }
  status = content_of(program, content);
  if (status == NVRTC_SUCCESS) {
    jbyteArray bytes = fluxccl_new_bytes(env, content, size);
    if (bytes != NULL) {
      (*env)->SetObjectArrayElement(env, result, index, bytes);
    }
  }
  free(content);
  return status;
}

static int compile(JNIEnv *env, const Nvrtc *nvrtc, const char *source, const char *name,
                   const Strings *headers, const Strings *names, const Strings *options,
                   jboolean cubin, jobjectArray result) {
  Program program = NULL;
  int status = nvrtc->create(&program, source, name, headers->count,
                             (const char *const *)headers->texts, (const char *const *)names->texts);
  if (status != NVRTC_SUCCESS) {
    return status;
  }
  status = nvrtc->compile(program, options->count, (const char *const *)options->texts);
  fetch(env, program, nvrtc->logSize, nvrtc->log, result, 1);
  if (status == NVRTC_SUCCESS && !(*env)->ExceptionCheck(env)) {
    status = cubin ? fetch(env, program, nvrtc->cubinSize, nvrtc->cubin, result, 0)
                   : fetch(env, program, nvrtc->ptxSize, nvrtc->ptx, result, 0);
  }
  nvrtc->destroy(&program);
  return status;
}

/*
 * Compiles. Stores the image into result[0] and the compiler's log into result[1]. Returns an
 * nvrtcResult.
 */
JNIEXPORT jint JNICALL Java_io_fluxccl_device_cuda_Nvrtc_compile(
    JNIEnv *env, jclass type, jlong library, jbyteArray source, jbyteArray name,
    jobjectArray headers, jobjectArray header_names, jobjectArray options, jboolean cubin,
    jobjectArray result) {
  (void)type;
  const Nvrtc *nvrtc = (const Nvrtc *)(intptr_t)library;
  Strings header_texts = {0, NULL};
  Strings name_texts = {0, NULL};
  Strings option_texts = {0, NULL};
  char *source_text = fluxccl_copy_bytes(env, source);
  char *name_text = source_text == NULL ? NULL : fluxccl_copy_bytes(env, name);
  int status = NVRTC_OUT_OF_MEMORY;
  if (name_text != NULL && copy_strings(env, headers, &header_texts) &&
      copy_strings(env, header_names, &name_texts) && copy_strings(env, options, &option_texts)) {
    status = compile(env, nvrtc, source_text, name_text, &header_texts, &name_texts,
                     &option_texts, cubin, result);
  }
  free_strings(&header_texts);
  free_strings(&name_texts);
  free_strings(&option_texts);
  free(source_text);
  free(name_text);
  return status;
}
