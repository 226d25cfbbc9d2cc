// SPDX-License-Identifier: Apache-2.0
/* Opens, inspects and closes the library of a vendor's network plugin. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "jni_support.h"
#include "netplugin_jni.h"
#include "netplugin_signals.h"

#define CALL(name) JNICALL Java_io_fluxccl_netplugin_vendor_NetPluginCalls_##name

/* Opens a library. If it can't be opened, returns 0 and the loader's message in problem[0]. */
JNIEXPORT jlong CALL(openLibrary)(JNIEnv *env, jclass type, jbyteArray name,
                                  jobjectArray problem) {
  (void)type;
  char *text = fluxccl_copy_bytes(env, name);
  if (text == NULL) {
    return 0;
  }
  SavedSignals signals;
  fluxccl_net_save_signals(&signals);
  void *library = dlopen(text, RTLD_NOW | RTLD_LOCAL);
  fluxccl_net_restore_signals(&signals);
  free(text);
  if (library == NULL) {
    const char *reason = dlerror();
    reason = reason == NULL ? "unknown" : reason;
    jbyteArray bytes = fluxccl_new_bytes(env, reason, strlen(reason));
    if (bytes != NULL) {
      (*env)->SetObjectArrayElement(env, problem, 0, bytes);
    }
  }
  return (jlong)(intptr_t)library;
}

JNIEXPORT void CALL(closeLibrary)(JNIEnv *env, jclass type, jlong library) {
  (void)env;
  (void)type;
  dlclose(pointer_of(library));
}

/* Returns the signals that plugins have taken and that were given back since the last call. */
JNIEXPORT jlong CALL(keptSignals)(JNIEnv *env, jclass type) {
  (void)env;
  (void)type;
  return (jlong)fluxccl_net_kept_signals();
}

/* Returns whether the library is FluxCCL's own (native/ncclnet), which would load FluxCCL again. */
JNIEXPORT jboolean CALL(isFluxCcl)(JNIEnv *env, jclass type, jlong library) {
  (void)env;
  (void)type;
  return dlsym(pointer_of(library), "fluxccl_nccl_net") != NULL;
}

/* Returns the path of the library. */
JNIEXPORT jbyteArray CALL(path)(JNIEnv *env, jclass type, jlong library) {
  (void)type;
  struct link_map *map = NULL;
  const char *path = "";
  if (dlinfo(pointer_of(library), RTLD_DI_LINKMAP, &map) == 0 && map != NULL) {
    path = map->l_name;
  }
  return fluxccl_new_bytes(env, path, strlen(path));
}
