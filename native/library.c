// SPDX-License-Identifier: Apache-2.0
/* Functions for the whole library: its version, the CUDA driver, the process's environment. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_abi.h"
#include "jni_support.h"

/* Must equal NativeLibrary.ABI: raised with every change of a native method. */
#define FLUXCCL_ABI 3

static pthread_once_t driver_once = PTHREAD_ONCE_INIT;
static void *driver;

static void open_driver(void) {
  /* Never closed: JCuda has the same library open for the life of the process. */
  driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
}

void *fluxccl_cuda_function(const char *name) {
  pthread_once(&driver_once, open_driver);
  return driver == NULL ? NULL : dlsym(driver, name);
}

void fluxccl_throw_out_of_memory(JNIEnv *env) {
  jclass type = (*env)->FindClass(env, "java/lang/OutOfMemoryError");
  if (type != NULL) {
    (*env)->ThrowNew(env, type, "libfluxccl: malloc failed");
  }
}

char *fluxccl_copy_bytes(JNIEnv *env, jbyteArray bytes) {
  jsize length = (*env)->GetArrayLength(env, bytes);
  char *copy = malloc((size_t)length + 1);
  if (copy == NULL) {
    fluxccl_throw_out_of_memory(env);
    return NULL;
  }
  (*env)->GetByteArrayRegion(env, bytes, 0, length, (jbyte *)copy);
  copy[length] = '\0';
  return copy;
}

jbyteArray fluxccl_new_bytes(JNIEnv *env, const void *bytes, size_t length) {
  if (length > INT32_MAX) {
    fluxccl_throw_out_of_memory(env);
    return NULL;
  }
  jbyteArray array = (*env)->NewByteArray(env, (jsize)length);
  if (array != NULL) {
    (*env)->SetByteArrayRegion(env, array, 0, (jsize)length, bytes);
  }
  return array;
}

JNIEXPORT jint JNICALL Java_io_fluxccl_NativeLibrary_abi(JNIEnv *env, jclass type) {
  (void)env;
  (void)type;
  return FLUXCCL_ABI;
}

/* Returns the system's text for an errno, as bytes of the locale's charset. */
JNIEXPORT jbyteArray JNICALL Java_io_fluxccl_NativeLibrary_describe(JNIEnv *env, jclass type,
                                                                     jint number) {
  (void)type;
  char buffer[256];
  /* The GNU strerror_r: returns the text, which may lie outside the buffer. */
  const char *text = strerror_r(number, buffer, sizeof buffer);
  return fluxccl_new_bytes(env, text, strlen(text));
}

/* Sets an environment variable if it is not set yet; returns 0 or the negative errno. */
JNIEXPORT jint JNICALL Java_io_fluxccl_NativeLibrary_setDefault(JNIEnv *env, jclass type,
                                                                jbyteArray name,
                                                                jbyteArray value) {
  (void)type;
  char *name_text = fluxccl_copy_bytes(env, name);
  char *value_text = name_text == NULL ? NULL : fluxccl_copy_bytes(env, value);
  jint result = -ENOMEM;
  if (value_text != NULL) {
    result = setenv(name_text, value_text, 0) == 0 ? 0 : -errno;
  }
  free(name_text);
  free(value_text);
  return result;
}

/*
 * Opens a package of a module to all unnamed modules, as --add-opens does on the command line. JNI
 * can call a method regardless of its access in Java; the JVM only requires permission to use JNI
 * (--enable-native-access). Throws what Module throws, and NoSuchMethodError in a JVM that has no
 * such method.
 */
JNIEXPORT void JNICALL Java_io_fluxccl_JvmAccess_open(JNIEnv *env, jclass type, jobject module,
                                                      jstring package) {
  (void)type;
  jclass module_type = (*env)->GetObjectClass(env, module);
  jmethodID open =
      (*env)->GetMethodID(env, module_type, "implAddOpensToAllUnnamed", "(Ljava/lang/String;)V");
  if (open != NULL) {
    (*env)->CallVoidMethod(env, module, open, package);
  }
}
