// The metadata note of a code object: MessagePack, of which the kernels' names and arguments are read.
#include "codeobject.h"
#include <stdlib.h>
#include <string.h>

enum { MOST_KERNELS = 4096, DEEPEST = 16, KEY_BYTES = 64 };

typedef enum { OTHER, INTEGER, TEXT, ARRAY, MAP } kind;
typedef struct { const uint8_t *at, *end; int damaged; } reader;
typedef struct { kind kind; u64 value; } item; // value: an integer, the bytes of a text, the items of an array or map

static u64 big_endian(reader *r, u32 bytes) {
  u64 value = 0;
  if ((u64)(r->end - r->at) < bytes) {
    r->damaged = 1, r->at = r->end;
    return 0;
  }
  while (bytes--) value = value << 8 | *r->at++;
  return value;
}

static void skip_bytes(reader *r, u64 bytes) {
  if ((u64)(r->end - r->at) < bytes) r->damaged = 1, r->at = r->end;
  else r->at += bytes;
}

static item other(reader *r, u32 size, u64 extra) { // binary data, floats, extensions
  skip_bytes(r, (size ? big_endian(r, size) : 0) + extra);
  return (item){OTHER, 0};
}

static item next(reader *r) {
  const u32 tag = (u32)big_endian(r, 1);
  if (tag < 0x80 || tag >= 0xe0) return (item){INTEGER, (u64)(int64_t)(int8_t)tag};
  if (tag < 0x90) return (item){MAP, tag & 15};
  if (tag < 0xa0) return (item){ARRAY, tag & 15};
  if (tag < 0xc0) return (item){TEXT, tag & 31};
  switch (tag) {
  case 0xc2: case 0xc3: return (item){INTEGER, tag & 1};
  case 0xc4: case 0xc5: case 0xc6: return other(r, 1u << (tag - 0xc4), 0);
  case 0xc7: case 0xc8: case 0xc9: return other(r, 1u << (tag - 0xc7), 1);
  case 0xca: case 0xcb: return other(r, 0, tag == 0xca ? 4 : 8);
  case 0xcc: case 0xcd: case 0xce: case 0xcf: case 0xd0: case 0xd1: case 0xd2: case 0xd3: return (item){INTEGER, big_endian(r, 1u << (tag & 3))};
  case 0xd4: case 0xd5: case 0xd6: case 0xd7: case 0xd8: return other(r, 0, (1u << (tag - 0xd4)) + 1);
  case 0xd9: case 0xda: case 0xdb: return (item){TEXT, big_endian(r, 1u << (tag - 0xd9))};
  case 0xdc: case 0xdd: return (item){ARRAY, big_endian(r, tag == 0xdc ? 2 : 4)};
  case 0xde: case 0xdf: return (item){MAP, big_endian(r, tag == 0xde ? 2 : 4)};
  default: return (item){OTHER, 0};
  }
}

static void skip(reader *r, u32 depth) {
  const item it = next(r);
  if (depth == DEEPEST) r->damaged = 1;
  if (it.kind == TEXT) skip_bytes(r, it.value);
  if (it.kind != ARRAY && it.kind != MAP) return;
  for (u64 n = it.kind == MAP ? 2 * it.value : it.value; n && !r->damaged; n--) skip(r, depth + 1);
}

static void read_text(reader *r, char *text, u64 room) { // a longer one counts as damage
  const item it = next(r);
  text[0] = 0;
  if (it.kind != TEXT || it.value >= room || it.value > (u64)(r->end - r->at)) {
    r->damaged = 1;
    return;
  }
  memcpy(text, r->at, it.value);
  text[it.value] = 0;
  r->at += it.value;
}

static u64 read_key(reader *r, char *key) {
  read_text(r, key, KEY_BYTES);
  return !r->damaged;
}

static u64 length_of(reader *r, kind wanted) {
  const item it = next(r);
  if (it.kind != wanted) r->damaged = 1;
  return r->damaged ? 0 : it.value;
}

static u32 read_number(reader *r) {
  const item it = next(r);
  if (it.kind != INTEGER) r->damaged = 1;
  return (u32)it.value;
}

static argument read_argument(reader *r) {
  argument a = {0, 0};
  char key[KEY_BYTES];
  for (u64 n = length_of(r, MAP); n && read_key(r, key); n--) {
    if (!strcmp(key, ".offset")) a.offset = read_number(r);
    else if (!strcmp(key, ".size")) a.bytes = read_number(r);
    else skip(r, 0);
  }
  return a;
}

static void read_arguments(reader *r, kernel *k) {
  const u64 count = length_of(r, ARRAY);
  if (count > MOST_ARGUMENTS) r->damaged = 1;
  for (u64 n = 0; n < count && !r->damaged; n++) k->arguments[k->argument_count++] = read_argument(r);
}

static void read_kernel(reader *r, kernel *k) {
  char key[KEY_BYTES];
  for (u64 n = length_of(r, MAP); n && read_key(r, key); n--) {
    if (!strcmp(key, ".name")) read_text(r, k->name, sizeof k->name);
    else if (!strcmp(key, ".symbol")) read_text(r, k->descriptor, sizeof k->descriptor);
    else if (!strcmp(key, ".kernarg_segment_size")) k->argument_bytes = read_number(r);
    else if (!strcmp(key, ".max_flat_workgroup_size")) k->most_threads = read_number(r);
    else if (!strcmp(key, ".args")) read_arguments(r, k);
    else skip(r, 0);
  }
  for (u32 n = 0; n < k->argument_count; n++)
    if ((u64)k->arguments[n].offset + k->arguments[n].bytes > k->argument_bytes) r->damaged = 1;
}

int read_metadata(const uint8_t *note, u64 bytes, kernel **kernels, u32 *count) {
  reader r = {note, note + bytes, 0};
  char key[KEY_BYTES];
  for (u64 n = length_of(&r, MAP); n && read_key(&r, key); n--) {
    if (strcmp(key, "amdhsa.kernels") || *kernels) {
      skip(&r, 0);
      continue;
    }
    const u64 found = length_of(&r, ARRAY);
    if (found > MOST_KERNELS || !(*kernels = calloc(found + 1, sizeof **kernels))) return 0;
    while (*count < found && !r.damaged) read_kernel(&r, &(*kernels)[(*count)++]);
  }
  return !r.damaged;
}
