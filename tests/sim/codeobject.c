// Code objects: 64-bit ELF files with the kernels' machine code, their descriptors and variables.
//
// The layout of descriptors is that of "User Guide for AMDGPU Backend" of LLVM, section Kernel Descriptor.
#include "codeobject.h"
#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MACHINE_AMDGPU = 224, MACH_GFX1201 = 0x4e, NOTE_METADATA = 32, RELOCATE_ABS64 = 3, RELOCATE_RELATIVE = 13 };
enum { WAVE32 = 1 << 10, PAGE = 4096, LARGEST = 1 << 30 };

typedef struct { // 64 bytes at the symbol NAME.kd
  u32 lds_bytes, scratch_bytes, argument_bytes, reserved0;
  int64_t entry; // from the descriptor
  u32 reserved1[5], rsrc3, rsrc1, rsrc2;
  uint16_t properties, preload;
  u32 reserved2;
} descriptor;
_Static_assert(sizeof(descriptor) == 64, "as in the file");

// Section headers stand at the end of what linkers write, so they tell the size of a file.
static u64 size_of_file(const Elf64_Ehdr *h) { return h->e_shoff + (u64)h->e_shnum * sizeof(Elf64_Shdr); }

static const void *part(const module *m, u64 offset, u64 bytes) { // of the file; 0 if it is not all there
  const u64 size = size_of_file((const Elf64_Ehdr *)m->file);
  return offset <= size && bytes <= size - offset ? m->file + offset : 0;
}

static const Elf64_Phdr *segments(const module *m, u32 *count) {
  const Elf64_Ehdr *h = (const Elf64_Ehdr *)m->file;
  *count = h->e_phnum;
  return part(m, h->e_phoff, *count * sizeof(Elf64_Phdr));
}

static const Elf64_Shdr *sections(const module *m, u32 *count) {
  const Elf64_Ehdr *h = (const Elf64_Ehdr *)m->file;
  *count = h->e_shnum;
  return part(m, h->e_shoff, *count * sizeof(Elf64_Shdr));
}

static int in_image(const module *m, u64 offset, u64 bytes) { return offset <= m->code.size && bytes <= m->code.size - offset; }

static int map_image(module *m) {
  u32 count;
  const Elf64_Phdr *p = segments(m, &count);
  u64 size = 0;
  if (!p) return 0;
  for (u32 n = 0; n < count; n++) {
    if (p[n].p_type != PT_LOAD) continue;
    if (p[n].p_vaddr > LARGEST || p[n].p_memsz > LARGEST || p[n].p_filesz > p[n].p_memsz) return 0;
    if (!part(m, p[n].p_offset, p[n].p_filesz)) return 0;
    if (p[n].p_vaddr + p[n].p_memsz > size) size = p[n].p_vaddr + p[n].p_memsz;
  }
  if (!size) return 0;
  uint8_t *image = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (image == MAP_FAILED) return 0;
  m->code = (code){.image = image, .base = (u64)image, .size = size};
  allocation_add(m->code.base, m->code.base + size);
  for (u32 n = 0; n < count; n++) {
    if (p[n].p_type != PT_LOAD) continue;
    memcpy(image + p[n].p_vaddr, m->file + p[n].p_offset, p[n].p_filesz);
    if (p[n].p_flags & PF_X) m->code.text_begin = p[n].p_vaddr, m->code.text_end = p[n].p_vaddr + p[n].p_memsz;
  }
  m->code.decoded = calloc((m->code.text_end - m->code.text_begin) / 4 + 1, sizeof(inst));
  return m->code.decoded && m->code.text_begin % 4 == 0;
}

// The dynamic symbols and their names, which end in a zero byte.
static const Elf64_Sym *symbols(const module *m, u64 *count, const char **names, u64 *name_bytes) {
  u32 n;
  const Elf64_Shdr *s = sections(m, &n);
  for (u32 k = 0; s && k < n; k++) {
    if (s[k].sh_type != SHT_DYNSYM || s[k].sh_link >= n) continue;
    const Elf64_Shdr *text = &s[s[k].sh_link];
    *count = s[k].sh_size / sizeof(Elf64_Sym);
    *names = part(m, text->sh_offset, text->sh_size);
    *name_bytes = text->sh_size;
    if (!*names || !text->sh_size || (*names)[text->sh_size - 1]) return 0;
    return part(m, s[k].sh_offset, s[k].sh_size);
  }
  return 0;
}

int find_variable(const module *m, const char *name, variable *out) {
  u64 count = 0, name_bytes = 0;
  const char *names = 0;
  const Elf64_Sym *s = symbols(m, &count, &names, &name_bytes);
  for (u64 n = 0; s && n < count; n++) {
    if (s[n].st_shndx == SHN_UNDEF || s[n].st_name >= name_bytes || strcmp(names + s[n].st_name, name)) continue;
    if (!in_image(m, s[n].st_value, s[n].st_size)) return 0;
    *out = (variable){names + s[n].st_name, m->code.base + s[n].st_value, s[n].st_size};
    return 1;
  }
  return 0;
}

static int relocate(module *m, const Elf64_Rela *r) {
  u64 count = 0, name_bytes = 0;
  const char *names = 0;
  const u32 type = (u32)ELF64_R_TYPE(r->r_info);
  u64 value = m->code.base + (u64)r->r_addend;
  if (!in_image(m, r->r_offset, 8)) return 0;
  if (type == RELOCATE_ABS64) {
    const Elf64_Sym *s = symbols(m, &count, &names, &name_bytes);
    if (!s || ELF64_R_SYM(r->r_info) >= count || s[ELF64_R_SYM(r->r_info)].st_shndx == SHN_UNDEF) return 0;
    value += s[ELF64_R_SYM(r->r_info)].st_value;
  } else if (type != RELOCATE_RELATIVE) {
    return 0;
  }
  memcpy((uint8_t *)m->code.base + r->r_offset, &value, 8);
  return 1;
}

static int relocate_all(module *m) {
  u32 count;
  const Elf64_Shdr *s = sections(m, &count);
  for (u32 k = 0; s && k < count; k++) {
    if (s[k].sh_type != SHT_RELA || !(s[k].sh_flags & SHF_ALLOC)) continue;
    const Elf64_Rela *r = part(m, s[k].sh_offset, s[k].sh_size);
    for (u64 n = 0; r && n < s[k].sh_size / sizeof *r; n++)
      if (!relocate(m, &r[n])) return 0;
  }
  return s != 0;
}

static int read_notes(module *m, const uint8_t *at, u64 bytes) {
  while (bytes >= sizeof(Elf64_Nhdr)) {
    const Elf64_Nhdr *note = (const Elf64_Nhdr *)at;
    const u64 name = (note->n_namesz + 3ull) & ~3ull, content = (note->n_descsz + 3ull) & ~3ull;
    if (name + content > bytes - sizeof *note) return 0;
    if (note->n_type == NOTE_METADATA) return read_metadata(at + sizeof *note + name, note->n_descsz, &m->kernels, &m->kernel_count);
    at += sizeof *note + name + content;
    bytes -= sizeof *note + name + content;
  }
  return 0;
}

static int read_descriptor(module *m, kernel *k) {
  variable v;
  descriptor d;
  if (!find_variable(m, k->descriptor, &v) || !in_image(m, v.address - m->code.base, sizeof d)) return 0;
  memcpy(&d, (const void *)v.address, sizeof d);
  k->home = m;
  k->entry = v.address - m->code.base + (u64)d.entry;
  k->lds_bytes = d.lds_bytes, k->scratch_bytes = d.scratch_bytes;
  k->rsrc2 = d.rsrc2, k->properties = d.properties;
  k->vgprs = ((d.rsrc1 & 63) + 1) * 8;
  return d.properties & WAVE32 && k->entry >= m->code.text_begin && k->entry < m->code.text_end;
}

static int read_kernels(module *m) {
  u32 count;
  const Elf64_Phdr *p = segments(m, &count);
  for (u32 n = 0; n < count; n++) {
    const uint8_t *note = p[n].p_type == PT_NOTE ? part(m, p[n].p_offset, p[n].p_filesz) : 0;
    if (note && read_notes(m, note, p[n].p_filesz)) break;
  }
  for (u32 n = 0; n < m->kernel_count; n++)
    if (!read_descriptor(m, &m->kernels[n])) return 0;
  return m->kernels != 0;
}

load_result load_code_object(const void *file, module **out) {
  const Elf64_Ehdr *h = file;
  if (memcmp(h->e_ident, ELFMAG, SELFMAG) || h->e_ident[EI_CLASS] != ELFCLASS64 || h->e_machine != MACHINE_AMDGPU) return NOT_A_CODE_OBJECT;
  if (h->e_shoff > LARGEST || h->e_shentsize != sizeof(Elf64_Shdr) || h->e_phentsize != sizeof(Elf64_Phdr)) return NOT_A_CODE_OBJECT;
  if ((h->e_flags & 0xff) != MACH_GFX1201) return OTHER_CHIP;
  module *m = calloc(1, sizeof *m);
  if (!m) return NOT_A_CODE_OBJECT;
  m->file = malloc(size_of_file(h));
  if (m->file) memcpy(m->file, file, size_of_file(h));
  if (!m->file || !map_image(m) || !relocate_all(m) || !read_kernels(m)) {
    unload_code_object(m);
    return NOT_A_CODE_OBJECT;
  }
  *out = m;
  return LOADED;
}

void unload_code_object(module *m) {
  if (m->code.size) {
    allocation_remove(m->code.base);
    munmap((void *)m->code.base, m->code.size);
  }
  free(m->code.decoded), free(m->kernels), free(m->file), free(m);
}
