// SPDX-License-Identifier: Apache-2.0
// The JVM in NCCL's process: finds or starts it, once, and attaches threads to it.
#define _GNU_SOURCE
#include "ncclnet.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT_CLASS "io/fluxccl/netplugin/export/NetPluginExport"

typedef jint (*created_jvms)(JavaVM **, jsize, jsize *);

struct java_methods java;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
// Changes under the lock; read by any thread.
static enum { NOT_STARTED, STARTED, FAILED } state;
// Why the start failed.
static char reason[1024];
static JavaVM *jvm;
static pthread_key_t attached;
// A forked child has none of the parent's threads, so the JVM does not work there.
static volatile bool forked;
static __thread JNIEnv *this_thread;

// Logs why the start fails, and keeps that for later calls.
static void __attribute__((format(printf, 1, 2))) start_fails(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(reason, sizeof reason, format, arguments);
  va_end(arguments);
  log_warn("%s", reason);
}

static void detach(void *env) {
  (void)env;
  this_thread = NULL;
  if (!forked) {
    (*jvm)->DetachCurrentThread(jvm);
  }
}

static void in_forked_child(void) {
  forked = state != NOT_STARTED;
}

// ---- options of a JVM in another program's process ----

enum { MOST_OPTIONS = 64 };

struct options {
  JavaVMOption list[MOST_OPTIONS];
  int count;
};

static void option(struct options *options, const char *text) {
  if (options->count < MOST_OPTIONS) {
    options->list[options->count++].optionString = strdup(text);
  }
}

// The JVM refuses two garbage collectors.
static bool chooses_collector(const char *options) {
  for (const char *at = strstr(options, "-XX:+Use"); at; at = strstr(at + 1, "-XX:+Use")) {
    size_t length = strcspn(at, " \t\n");
    if (strncmp(at + length - 2, "GC", 2) == 0) {
      return true;
    }
  }
  return false;
}

static bool collect_options(struct options *options, const char *library) {
  char *path = class_path();
  char *given = NULL;
  if (!path || asprintf(&given, "-Djava.class.path=%s", path) < 0) {
    start_fails("FluxCCL's jars are neither beside this library nor named by FLUXCCL_NET_CLASSPATH");
    free(path);
    return false;
  }
  option(options, given);
  free(given);
  free(path);
  // The JVM does not handle the process's signals.
  option(options, "-Xrs");
  // FluxCCL allocates little, and nothing while messages move.
  option(options, "-Xms8m");
  option(options, "-Xmx128m");
  // Buffers of connections, and messages that are ahead of their receives.
  option(options, "-XX:MaxDirectMemorySize=512m");
  const char *more = getenv("FLUXCCL_NET_JAVA_OPTIONS");
  if (!more || !chooses_collector(more)) {
    option(options, "-XX:+UseSerialGC");
  }
  option(options, "-XX:ReservedCodeCacheSize=48m");
  option(options, "-XX:-UsePerfData");
  option(options, "-Xshare:auto");
  option(options, "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED");
  option(options, "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED");
  option(options, "-Dlogback.configurationFile=io/fluxccl/cli/logback-cli.xml");
  if (java_version(library) >= 24) {
    option(options, "--enable-native-access=ALL-UNNAMED");
  }
  const char *jmx = getenv("FLUXCCL_NET_JMX");
  if (jmx && strcmp(jmx, "1") == 0) {
    // Without signals, jcmd and jconsole can attach in no other way.
    option(options, "-XX:+StartAttachListener");
  }
  // These come last, so that they take precedence.
  char *copy = more ? strdup(more) : NULL;
  char *rest = NULL;
  for (char *each = copy ? strtok_r(copy, " \t\n", &rest) : NULL; each; each = strtok_r(NULL, " \t\n", &rest)) {
    option(options, each);
  }
  free(copy);
  return true;
}

// ---- finding and starting ----

static int find_jvm(struct dl_phdr_info *info, size_t size, void *found) {
  (void)size;
  const char *name = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
  if (name && strcmp(name, "/libjvm.so") == 0) {
    *(char **)found = strdup(info->dlpi_name);
    return 1;
  }
  return 0;
}

// Returns the JVM that already runs in this process, or NULL.
static JavaVM *running_jvm(void) {
  char *path = NULL;
  dl_iterate_phdr(find_jvm, &path);
  void *library = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
  free(path);
  created_jvms created = library ? (created_jvms)dlsym(library, "JNI_GetCreatedJavaVMs") : NULL;
  JavaVM *found = NULL;
  jsize count = 0;
  return created && created(&found, 1, &count) == JNI_OK && count > 0 ? found : NULL;
}

static bool start_new(void) {
  char *tried = NULL;
  char *path = jvm_library(&tried);
  if (!path) {
    start_fails("no Java: looked for %s; install a JRE 17 or later, or set FLUXCCL_NET_JAVA_HOME to one", tried ? tried : "");
    free(tried);
    return false;
  }
  free(tried);
  void *library = dlopen(path, RTLD_NOW);
  create_jvm create = library ? (create_jvm)dlsym(library, "JNI_CreateJavaVM") : NULL;
  if (!create) {
    start_fails("%s can't be loaded: %s", path, dlerror());
    free(path);
    return false;
  }
  // A JVM that has refused may still read them.
  static struct options options = {.count = CREATE_HOOKS};
  if (collect_options(&options, path)) {
    char problem[600];
    jvm = create_on_a_thread(create, options.list, options.count, problem, sizeof problem);
    if (jvm) {
      log_info("started the JVM of %s", path);
    } else {
      start_fails("the JVM of %s did not start (%s); is one of FLUXCCL_NET_JAVA_OPTIONS wrong, or memory short?", path, problem);
    }
  }
  free(path);
  return jvm != NULL;
}

// ---- the class ----

static void JNICALL java_log(JNIEnv *env, jclass class, jboolean warning, jbyteArray text) {
  (void)class;
  char bytes[1536];
  jsize length = (*env)->GetArrayLength(env, text);
  if (length > (jsize)sizeof bytes - 1) {
    length = sizeof bytes - 1;
  }
  (*env)->GetByteArrayRegion(env, text, 0, length, (jbyte *)bytes);
  bytes[length] = 0;
  if (warning) {
    log_warn("%s", bytes);
  } else {
    log_info("%s", bytes);
  }
}

static bool find_methods(JNIEnv *env) {
  const struct {
    jmethodID *id;
    const char *name;
    const char *signature;
  } methods[] = {
      {&java.open, "open", "()I"},
      {&java.release, "release", "()I"},
      {&java.properties, "properties", "(IJ)I"},
      {&java.listen, "listen", "(IJ)J"},
      {&java.connect, "connect", "(IJ)J"},
      {&java.accept, "accept", "(J)J"},
      {&java.register_memory, "register", "(JJJI)J"},
      {&java.register_dma_buf, "registerDmaBuf", "(JJJIJI)J"},
      {&java.deregister, "deregister", "(JJ)I"},
      {&java.isend, "isend", "(JJJIJ)J"},
      {&java.irecv, "irecv", "(JIJJZJJ)J"},
      {&java.iflush, "iflush", "(JIJJJ)J"},
      {&java.test, "test", "(JJ)I"},
      {&java.close, "close", "(J)I"},
      {&java.close_listen, "closeListen", "(J)I"},
  };
  jclass found = (*env)->FindClass(env, EXPORT_CLASS);
  if (!found) {
    return false;
  }
  java.class = (*env)->NewGlobalRef(env, found);
  (*env)->DeleteLocalRef(env, found);
  if (!java.class) {
    return false;
  }
  for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
    *methods[i].id = (*env)->GetStaticMethodID(env, java.class, methods[i].name, methods[i].signature);
    if (!*methods[i].id) {
      return false;
    }
  }
  const JNINativeMethod log = {"log", "(Z[B)V", (void *)java_log};
  return (*env)->RegisterNatives(env, java.class, &log, 1) == JNI_OK;
}

static JNIEnv *attach(void) {
  JNIEnv *env = NULL;
  JavaVMAttachArgs arguments = {JNI_VERSION_10, "nccl", NULL};
  if ((*jvm)->GetEnv(jvm, (void **)&env, JNI_VERSION_10) == JNI_OK) {
    // A thread that the JVM or another library has attached: this library must not detach it.
    this_thread = env;
    return env;
  }
  if ((*jvm)->AttachCurrentThreadAsDaemon(jvm, (void **)&env, &arguments) != JNI_OK) {
    log_warn("the JVM takes no more threads");
    return NULL;
  }
  this_thread = env;
  pthread_setspecific(attached, env);
  return env;
}

static bool start(void) {
  if (pthread_key_create(&attached, detach) != 0) {
    start_fails("no thread key is left");
    return false;
  }
  pthread_atfork(NULL, NULL, in_forked_child);
  jvm = running_jvm();
  bool found = jvm != NULL;
  if (found) {
    log_info("uses the JVM that runs in this process");
  } else if (!start_new()) {
    return false;
  }
  JNIEnv *env = attach();
  if (!env) {
    start_fails("the JVM takes no thread of this process");
    return false;
  }
  if (!find_methods(env)) {
    (*env)->ExceptionClear(env);
    start_fails("the JVM does not find FluxCCL's class " EXPORT_CLASS " of this version on its class path%s",
             found ? "; it ran before, start it with FluxCCL's jars" : "; see FLUXCCL_NET_CLASSPATH");
    return false;
  }
  return true;
}

int jvm_start(void) {
  if (forked) {
    log_warn("init in a forked child, where the JVM of the parent does not work; start workers with spawn, not fork");
    return RESULT_SYSTEM_ERROR;
  }
  pthread_mutex_lock(&lock);
  if (state == NOT_STARTED) {
    bool started = start();
    __atomic_store_n(&state, started ? STARTED : FAILED, __ATOMIC_RELEASE);
  } else if (state == FAILED) {
    log_warn("FluxCCL failed to start before in this process: %s", reason);
  }
  int result = state == STARTED ? RESULT_SUCCESS : RESULT_SYSTEM_ERROR;
  pthread_mutex_unlock(&lock);
  return result;
}

bool jvm_is_started(void) {
  return __atomic_load_n(&state, __ATOMIC_ACQUIRE) == STARTED;
}

JNIEnv *jvm_env(void) {
  if (forked) {
    log_warn("called in a forked child, where the JVM of the parent does not work");
    return NULL;
  }
  // Before the start, and after one that failed, the methods of the class are unknown.
  if (!jvm_is_started()) {
    log_warn("called although init did not succeed%s%s", reason[0] ? ": " : "", reason);
    return NULL;
  }
  return this_thread ? this_thread : attach();
}

long jvm_result(JNIEnv *env, long result) {
  if ((*env)->ExceptionCheck(env)) {
    // The methods catch everything. An exception that escapes means that no memory is left for a longer
    // message.
    (*env)->ExceptionClear(env);
    log_warn("an exception escaped; is the JVM out of memory (FLUXCCL_NET_JAVA_OPTIONS=-Xmx...)?");
    return -RESULT_INTERNAL_ERROR;
  }
  return result;
}
