// SPDX-License-Identifier: Apache-2.0
// From one stack to another. Included by emulation.c alone.
#ifndef EMULATION_SWITCH_H
#define EMULATION_SWITCH_H

#if defined(__x86_64__)

#define emulation_can_leave true

// Saves the callee-saved registers, stores the stack pointer to *save, and continues where load was saved.
void emulation_switch(void **save, void *load);
void emulation_switched(void);

__asm__(
    ".text\n"
    ".globl emulation_switch\n"
    ".hidden emulation_switch\n"
    ".type emulation_switch, @function\n"
    "emulation_switch:\n"
    "  pushq %rbp\n"
    "  pushq %rbx\n"
    "  pushq %r12\n"
    "  pushq %r13\n"
    "  pushq %r14\n"
    "  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    ".globl emulation_switched\n"
    ".hidden emulation_switched\n"
    "emulation_switched:\n"
    "  popq %r15\n"
    "  popq %r14\n"
    "  popq %r13\n"
    "  popq %r12\n"
    "  popq %rbx\n"
    "  popq %rbp\n"
    "  ret\n"
    ".size emulation_switch, . - emulation_switch\n");

static void emulation_prepare(void **stack_pointer, unsigned char *low, unsigned char *high, void (*entry)(void)) {
  (void)low;
  uint64_t *top = (uint64_t *)((uintptr_t)high / 16 * 16);
  *--top = 0;  // where entry would return to; it doesn't
  *--top = (uint64_t)(uintptr_t)entry;
  for (int i = 0; i < 6; i++) *--top = 0;
  *stack_pointer = top;
}

static bool emulation_stack_holds(const void *stack_pointer, const unsigned char *least) {
  return (const unsigned char *)stack_pointer >= least;
}

// Makes a signal handler return to where a stack was left.
static void emulation_leave(void *context, void *stack_pointer) {
  greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
  registers[REG_RSP] = (greg_t)(uintptr_t)stack_pointer;
  registers[REG_RIP] = (greg_t)(uintptr_t)emulation_switched;
}

#else

#define emulation_can_leave false

// The standard library's, which asks the kernel about signals at every switch.
static void emulation_switch(void **save, void *load) {
  ucontext_t here;
  *save = &here;
  swapcontext(&here, load);
}

static void emulation_prepare(void **stack_pointer, unsigned char *low, unsigned char *high, void (*entry)(void)) {
  ucontext_t *context = (ucontext_t *)(((uintptr_t)high - sizeof(ucontext_t)) / 64 * 64);
  getcontext(context);
  context->uc_stack.ss_sp = low;
  context->uc_stack.ss_size = (size_t)((unsigned char *)context - low);
  context->uc_link = NULL;
  makecontext(context, entry, 0);
  *stack_pointer = context;
}

static bool emulation_stack_holds(const void *stack_pointer, const unsigned char *least) {
  return (const unsigned char *)stack_pointer >= least;
}

static void emulation_leave(void *context, void *stack_pointer) {
  (void)context;
  (void)stack_pointer;
}

#endif
#endif
