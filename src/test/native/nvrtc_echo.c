// SPDX-License-Identifier: Apache-2.0
// An NVRTC whose "image" lists its arguments: kind, options, source and headers, a line each. A source with
// #error in it fails to compile, one with #crash gives an internal error.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, COMPILATION = 6, INTERNAL = 11 };

struct program {
  char *text;
  size_t length;
  FILE *out;
  const char *log;
  int broken;
};

int nvrtcVersion(int *major, int *minor) {
  *major = 13;
  *minor = 9;
  return SUCCESS;
}

int nvrtcGetNumSupportedArchs(int *count) {
  *count = 2;
  return SUCCESS;
}

int nvrtcGetSupportedArchs(int *archs) {
  archs[0] = 80;
  archs[1] = 90;
  return SUCCESS;
}

const char *nvrtcGetErrorString(int result) {
  return result == COMPILATION ? "NVRTC_ERROR_COMPILATION" : "NVRTC_ERROR_INTERNAL_ERROR";
}

int nvrtcCreateProgram(struct program **made, const char *source, const char *name, int count,
                       const char *const *headers, const char *const *names) {
  struct program *program = calloc(1, sizeof *program);
  program->out = open_memstream(&program->text, &program->length);
  program->broken = strstr(source, "#error") ? COMPILATION : strstr(source, "#crash") ? INTERNAL : 0;
  fprintf(program->out, "source %s\n%s\n", name, source);
  for (int i = 0; i < count; i++) {
    fprintf(program->out, "header %s\n%s\n", names[i], headers[i]);
  }
  *made = program;
  return SUCCESS;
}

int nvrtcDestroyProgram(struct program **program) {
  fclose((*program)->out);
  free((*program)->text);
  free(*program);
  *program = NULL;
  return SUCCESS;
}

int nvrtcCompileProgram(struct program *program, int count, const char *const *options) {
  for (int i = 0; i < count; i++) {
    fprintf(program->out, "option %s\n", options[i]);
  }
  program->log = program->broken ? "wrong.cu(3): error: #error \"nothing good\"" : "";
  return program->broken;
}

int nvrtcGetProgramLogSize(struct program *program, size_t *size) {
  *size = strlen(program->log) + 1;
  return SUCCESS;
}

int nvrtcGetProgramLog(struct program *program, char *log) {
  strcpy(log, program->log);
  return SUCCESS;
}

int nvrtcGetPTXSize(struct program *program, size_t *size) {
  fflush(program->out);
  *size = program->length + 5;
  return SUCCESS;
}

int nvrtcGetPTX(struct program *program, char *image) {
  memcpy(image, "ptx\n", 4);
  memcpy(image + 4, program->text, program->length + 1);
  return SUCCESS;
}

int nvrtcGetCUBINSize(struct program *program, size_t *size) {
  fflush(program->out);
  *size = program->length + 6;
  return SUCCESS;
}

int nvrtcGetCUBIN(struct program *program, char *image) {
  memcpy(image, "cubin\n", 6);
  memcpy(image + 6, program->text, program->length);
  return SUCCESS;
}
