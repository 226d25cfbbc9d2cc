// SPDX-License-Identifier: Apache-2.0
// Finds the JVM and FluxCCL's classes.
#define _GNU_SOURCE
#include "ncclnet.h"

#include <dirent.h>
#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *text_of(const char *format, const char *a, const char *b) {
  char *text = NULL;
  return asprintf(&text, format, a, b) < 0 ? NULL : text;
}

char *path_of_this_library(void) {
  Dl_info info;
  if (!dladdr((void *)path_of_this_library, &info) || !info.dli_fname) {
    return NULL;
  }
  return realpath(info.dli_fname, NULL);
}

static char *folder_of_this_library(void) {
  char *path = path_of_this_library();
  char *end = path ? strrchr(path, '/') : NULL;
  if (end) {
    *end = 0;
  }
  return path;
}

static bool is_jar(const char *name) {
  size_t length = strlen(name);
  return length > 4 && strcmp(name + length - 4, ".jar") == 0;
}

// Adds the jars of a folder to a list; returns whether there is one.
static bool add_jars(const char *folder, char **list) {
  DIR *directory = opendir(folder);
  bool found = false;
  for (struct dirent *entry; directory && (entry = readdir(directory));) {
    if (is_jar(entry->d_name)) {
      char *jar = text_of("%s/%s", folder, entry->d_name);
      char *longer = jar ? text_of(**list ? "%s:%s" : "%s%s", *list, jar) : NULL;
      if (longer) {
        free(*list);
        *list = longer;
        found = true;
      }
      free(jar);
    }
  }
  if (directory) {
    closedir(directory);
  }
  return found;
}

char *class_path(void) {
  const char *given = getenv("FLUXCCL_NET_CLASSPATH");
  if (given && *given) {
    return strdup(given);
  }
  char *folder = folder_of_this_library();
  char *classes = folder ? text_of("%s/%s", folder, "../classes") : NULL;
  char *list = NULL;
  if (classes && access(classes, R_OK) == 0) {
    // In a build: target/ncclnet beside target/classes and target/lib.
    char *jars = text_of("%s/%s", folder, "../lib");
    list = strdup(classes);
    if (jars && list) {
      add_jars(jars, &list);
    }
    free(jars);
  } else if (folder) {
    // In a bundle, or any folder with the jars: they lie beside the library.
    list = strdup("");
    if (list && !add_jars(folder, &list)) {
      free(list);
      list = NULL;
    }
  }
  free(classes);
  free(folder);
  return list;
}

// Returns the JVM in the folder of a Java, or NULL; adds the places searched to *tried.
static char *jvm_in(const char *what, const char *home, char **tried) {
  char *path = text_of("%s%s", home, "/lib/server/libjvm.so");
  char *more = path ? text_of(**tried ? "%s, %s" : "%s%s", *tried, what) : NULL;
  char *longer = more ? text_of("%s (%s)", more, path) : NULL;
  free(more);
  if (longer) {
    free(*tried);
    *tried = longer;
  }
  if (path && access(path, R_OK) == 0) {
    return path;
  }
  free(path);
  return NULL;
}

// Returns the folder of the java on the PATH, or NULL.
static char *home_on_path(void) {
  const char *path = getenv("PATH");
  char *copy = path ? strdup(path) : NULL;
  char *rest = NULL;
  char *home = NULL;
  for (char *each = copy ? strtok_r(copy, ":", &rest) : NULL; each && !home; each = strtok_r(NULL, ":", &rest)) {
    char *java = text_of("%s/%s", each, "java");
    char *real = java && access(java, X_OK) == 0 ? realpath(java, NULL) : NULL;
    if (real) {
      // .../bin/java
      home = strdup(dirname(dirname(real)));
    }
    free(real);
    free(java);
  }
  free(copy);
  return home;
}

char *jvm_library(char **tried) {
  char *found = NULL;
  *tried = strdup("");
  const char *named = getenv("FLUXCCL_NET_JAVA_HOME");
  if (named && *named) {
    // If the user names one, no other is used.
    return jvm_in("FLUXCCL_NET_JAVA_HOME", named, tried);
  }
  char *folder = folder_of_this_library();
  char *runtime = folder ? text_of("%s/%s", folder, "../runtime") : NULL;
  found = runtime ? jvm_in("the bundle's", runtime, tried) : NULL;
  free(runtime);
  free(folder);
  const char *home = getenv("JAVA_HOME");
  if (!found && home && *home) {
    found = jvm_in("JAVA_HOME", home, tried);
  }
  char *on_path = found ? NULL : home_on_path();
  if (on_path) {
    found = jvm_in("the java on the PATH", on_path, tried);
  }
  free(on_path);
  return found;
}

int java_version(const char *library) {
  // HOME/lib/server/libjvm.so, and HOME/release with a line JAVA_VERSION="17.0.1".
  char path[PATH_MAX];
  if (snprintf(path, sizeof path, "%s", library) >= (int)sizeof path) {
    return 0;
  }
  for (int up = 0; up < 3; up++) {
    char *end = strrchr(path, '/');
    if (!end) {
      return 0;
    }
    *end = 0;
  }
  char *release = text_of("%s/%s", path, "release");
  FILE *file = release ? fopen(release, "re") : NULL;
  int version = 0;
  char line[512];
  while (file && !version && fgets(line, sizeof line, file)) {
    sscanf(line, "JAVA_VERSION=\"%d", &version);
  }
  if (file) {
    fclose(file);
  }
  free(release);
  return version;
}
