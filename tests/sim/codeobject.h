// A loaded code object: kernels, variables, and what their launches need.
#pragma once
#include "sim.h"

enum { MOST_ARGUMENTS = 64, NAME_BYTES = 128 };

typedef struct { u32 offset, bytes; } argument;
typedef struct module module;

typedef struct {
  char name[NAME_BYTES], descriptor[NAME_BYTES]; // the symbol of its descriptor
  const module *home;
  u64 entry;                                     // byte offset of its first instruction in the image
  u32 lds_bytes, scratch_bytes, argument_bytes, vgprs, rsrc2, properties, most_threads;
  u32 argument_count;
  argument arguments[MOST_ARGUMENTS];
} kernel;

typedef struct { const char *name; u64 address, bytes; } variable;

struct module {
  code code;
  uint8_t *file;         // a copy of the ELF file
  kernel *kernels;
  u32 kernel_count;
};

typedef enum { LOADED, NOT_A_CODE_OBJECT, OTHER_CHIP } load_result;

// codeobject.c
load_result load_code_object(const void *file, module **out);
void unload_code_object(module *m);
int find_variable(const module *m, const char *name, variable *out); // false if there is none

// metadata.c: the kernels of the metadata note, without what their descriptors say; false if it is damaged
int read_metadata(const uint8_t *note, u64 bytes, kernel **kernels, u32 *count);
