// SPDX-License-Identifier: Apache-2.0
// An NVRTC that "compiles" by handing the source on: the driver beside it finds the kernels' names in it.
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

enum { SUCCESS = 0, INVALID_INPUT = 3, INVALID_PROGRAM = 4, COMPILATION = 6 };

struct program {
  char *source;
  const char *log;
};

API int nvrtcVersion(int *major, int *minor) {
  *major = 13;
  *minor = 0;
  return SUCCESS;
}

API const char *nvrtcGetErrorString(int result) {
  return result == SUCCESS ? "NVRTC_SUCCESS" : result == COMPILATION ? "NVRTC_ERROR_COMPILATION" : "NVRTC_ERROR_INVALID_INPUT";
}

API int nvrtcGetNumSupportedArchs(int *count) {
  *count = 1;
  return SUCCESS;
}

API int nvrtcGetSupportedArchs(int *archs) {
  archs[0] = 90;
  return SUCCESS;
}

API int nvrtcCreateProgram(struct program **program, const char *source, const char *name, int headers,
                           const char *const *contents, const char *const *names) {
  if (!program || !source || headers < 0 || (headers && (!contents || !names))) return INVALID_INPUT;
  *program = calloc(1, sizeof **program);
  (*program)->source = strdup(source);
  (*program)->log = "";
  return SUCCESS;
}

API int nvrtcDestroyProgram(struct program **program) {
  if (!program || !*program) return INVALID_PROGRAM;
  free((*program)->source);
  free(*program);
  *program = NULL;
  return SUCCESS;
}

API int nvrtcCompileProgram(struct program *program, int count, const char *const *options) {
  for (int i = 0; i < count; i++) {
    if (!options[i] || options[i][0] != '-') {
      program->log = "unknown option";
      return INVALID_INPUT;
    }
  }
  if (!strstr(program->source, "#error")) return SUCCESS;
  program->log = "program.cu(1): catastrophic error: #error directive";
  return COMPILATION;
}

API int nvrtcGetProgramLogSize(struct program *program, size_t *size) {
  *size = strlen(program->log) + 1;
  return SUCCESS;
}

API int nvrtcGetProgramLog(struct program *program, char *log) {
  strcpy(log, program->log);
  return SUCCESS;
}

API int nvrtcGetPTXSize(struct program *program, size_t *size) {
  *size = strlen(program->source) + 1;
  return SUCCESS;
}

API int nvrtcGetPTX(struct program *program, char *ptx) {
  strcpy(ptx, program->source);
  return SUCCESS;
}

API int nvrtcGetCUBINSize(struct program *program, size_t *size) { return nvrtcGetPTXSize(program, size); }
API int nvrtcGetCUBIN(struct program *program, char *cubin) { return nvrtcGetPTX(program, cubin); }
