// The JVM in NCCL's process: finds or starts it, once, and attaches threads to it.
#define _GNU_SOURCE
#include "ncclnet.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT_CLASS "io/fluxccl/netplugin/export/NetPluginExport"

typedef jint (*create_jvm)(JavaVM **, void **, void *);
typedef jint (*created_jvms)(JavaVM **, jsize, jsize *);

struct java_methods java;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static enum { NOT_STARTED, STARTED, FAILED } state;
static JavaVM *jvm;
static pthread_key_t attached;
// A forked child has none of the parent's threads, so the JVM does not work there.
static volatile bool forked;
static __thread JNIEnv *this_thread;

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

static bool collect_options(struct options *options, const char *library) {
  char *path = class_path();
  char *given = NULL;
  if (!path || asprintf(&given, "-Djava.class.path=%s", path) < 0) {
    log_warn("FluxCCL's jars are neither beside this library nor named by FLUXCCL_NET_CLASSPATH");
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
  option(options, "-XX:+UseSerialGC");
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
  const char *more = getenv("FLUXCCL_NET_JAVA_OPTIONS");
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
    log_warn("no Java: looked for %s; install a JRE 17 or later, or set FLUXCCL_NET_JAVA_HOME to one", tried ? tried : "");
    free(tried);
    return false;
  }
  free(tried);
  void *library = dlopen(path, RTLD_NOW);
  create_jvm create = library ? (create_jvm)dlsym(library, "JNI_CreateJavaVM") : NULL;
  if (!create) {
    log_warn("%s can't be loaded: %s", path, dlerror());
    free(path);
    return false;
  }
  struct options options = {.count = 0};
  bool ready = collect_options(&options, path);
  if (ready) {
    JavaVMInitArgs arguments = {JNI_VERSION_10, options.count, options.list, JNI_FALSE};
    JNIEnv *env = NULL;
    jint result = create(&jvm, (void **)&env, &arguments);
    ready = result == JNI_OK;
    if (ready) {
      log_info("started the JVM of %s", path);
      this_thread = env;
      pthread_setspecific(attached, env);
    } else {
      log_warn("the JVM of %s did not start (%d); is one of FLUXCCL_NET_JAVA_OPTIONS wrong, or memory short?", path, (int)result);
    }
  }
  for (int i = 0; i < options.count; i++) {
    free(options.list[i].optionString);
  }
  free(path);
  return ready;
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
    log_warn("no thread key is left");
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
  JNIEnv *env = this_thread ? this_thread : attach();
  if (!env) {
    return false;
  }
  if (!find_methods(env)) {
    (*env)->ExceptionClear(env);
    log_warn("the JVM does not find FluxCCL's class " EXPORT_CLASS " of this version on its class path%s",
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
    state = start() ? STARTED : FAILED;
  } else if (state == FAILED) {
    log_warn("the JVM failed to start before; the reason was logged then");
  }
  int result = state == STARTED ? RESULT_SUCCESS : RESULT_SYSTEM_ERROR;
  pthread_mutex_unlock(&lock);
  return result;
}

JNIEnv *jvm_env(void) {
  if (forked) {
    log_warn("called in a forked child, where the JVM of the parent does not work");
    return NULL;
  }
  if (this_thread) {
    return this_thread;
  }
  // A valid caller has seen init succeed.
  if (!java.class) {
    log_warn("called before init");
    return NULL;
  }
  return attach();
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
