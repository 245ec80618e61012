// What kernels of the tests are written with: workgroups of 256 threads unless SHAPED.
#pragma once
typedef unsigned int u32;
#define GLOBAL __attribute__((address_space(1)))
#define LDS __attribute__((address_space(3)))
#define SHAPED __attribute__((amdgpu_kernel, amdgpu_flat_work_group_size(1, 1024), visibility("protected")))
#define KERNEL __attribute__((amdgpu_kernel, amdgpu_flat_work_group_size(256, 256), visibility("protected")))
#define GROUP __builtin_amdgcn_workgroup_id_x()
#define THREAD __builtin_amdgcn_workitem_id_x()
#define ORDER(kind, scope) __builtin_amdgcn_fence(kind, scope)
#define DEVICE __MEMORY_SCOPE_DEVICE
#define ASM __asm__ volatile

extern LDS u32 shared[]; // as large as the launch says
static inline void meet(void) {
  ORDER(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  ORDER(__ATOMIC_ACQUIRE, "workgroup");
}
static inline u32 peek(u32 GLOBAL *p) { return __scoped_atomic_load_n(p, __ATOMIC_RELAXED, DEVICE); }
