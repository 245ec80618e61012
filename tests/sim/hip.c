// libamdhip64.so: the device and its errors.
#include "hip.h"
#include <stdio.h>
#include <string.h>

enum { VERSION = 70100000, ERROR_BYTES = 2300 };
#define DEFAULT_LIMIT 20000000000ull
#define DEVICE_NAME "simulated gfx1201"

static _Thread_local hipError_t last;
static pthread_mutex_t one_call = PTHREAD_MUTEX_INITIALIZER;
static int configured;
static char last_error[ERROR_BYTES], error_text[ERROR_BYTES + 64];

hipError_t result(hipError_t error) {
  if (error) last = error;
  return error;
}
static void set_defaults(void) { // all checks that correct code passes in any order of its waves
  sim.options = CHECK_BOUNDS | CHECK_WAITS | CHECK_LDS | POISON;
  sim.limit = DEFAULT_LIMIT;
}
void enter(void) {
  pthread_mutex_lock(&one_call);
  if (!configured) set_defaults();
  configured = 1;
}
hipError_t leave(hipError_t error) {
  pthread_mutex_unlock(&one_call);
  return result(error);
}

// The runtime's structure of version 6.
typedef struct {
  char name[256], uuid[16], luid[8];
  u32 luidDeviceNodeMask;
  size_t totalGlobalMem, sharedMemPerBlock;
  int regsPerBlock, warpSize;
  size_t memPitch;
  int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], clockRate;
  size_t totalConstMem;
  int major, minor;
  size_t textureAlignment, texturePitchAlignment;
  int deviceOverlap, multiProcessorCount, kernelExecTimeoutEnabled, integrated, canMapHostMemory, computeMode, textures[26], surfaces[14];
  size_t surfaceAlignment;
  int concurrentKernels, ECCEnabled, pciBusID, pciDeviceID, pciDomainID, tccDriver, asyncEngineCount, unifiedAddressing, memoryClockRate;
  int memoryBusWidth, l2CacheSize, persistingL2CacheMaxSize, maxThreadsPerMultiProcessor, streamPrioritiesSupported;
  int globalL1CacheSupported, localL1CacheSupported;
  size_t sharedMemPerMultiprocessor;
  int regsPerMultiprocessor, managedMemory, isMultiGpuBoard, multiGpuBoardGroupID, hostNativeAtomicSupported;
  int singleToDoublePrecisionPerfRatio, pageableMemoryAccess, concurrentManagedAccess, computePreemptionSupported;
  int canUseHostPointerForRegisteredMem, cooperativeLaunch, cooperativeMultiDeviceLaunch;
  size_t sharedMemPerBlockOptin;
  int pageableMemoryAccessUsesHostPageTables, directManagedMemAccessFromHost, maxBlocksPerMultiProcessor, accessPolicyMaxWindowSize;
  size_t reservedSharedMemPerBlock;
  int more[13], reserved[63], hipReserved[32];
  char gcnArchName[256];
  size_t maxSharedMemoryPerMultiProcessor;
  int clockInstructionRate;
  u32 arch, *hdpMemFlushCntl, *hdpRegFlushCntl;
  int unmatched[4], isLargeBar, asicRevision;
} properties;

API hipError_t hipGetDevicePropertiesR0600(properties *p, int device) {
  if (!p || device) return result(hipErrorInvalidValue);
  *p = (properties){
    .name = DEVICE_NAME, .gcnArchName = "gfx1201", .totalGlobalMem = memory_bytes(), .sharedMemPerBlock = LDS_A_GROUP,
    .regsPerBlock = 196608, .warpSize = LANES, .maxThreadsPerBlock = MOST_THREADS, .maxThreadsDim = {MOST_THREADS, MOST_THREADS, MOST_THREADS},
    .maxGridSize = {0x7fffffff, 65535, 65535}, .clockRate = CLOCK_KHZ, .major = 12, .multiProcessorCount = WGPS,
    .concurrentKernels = 1, .unifiedAddressing = 1, .memoryClockRate = MEMORY_CLOCK_KHZ, .memoryBusWidth = MEMORY_BITS, .l2CacheSize = L2_BYTES,
    .maxThreadsPerMultiProcessor = SIMDS * WAVES_A_SIMD * LANES, .sharedMemPerMultiprocessor = LDS_A_WGP, .cooperativeLaunch = 1,
    .sharedMemPerBlockOptin = LDS_A_GROUP, .maxBlocksPerMultiProcessor = GROUPS_A_WGP, .maxSharedMemoryPerMultiProcessor = LDS_A_WGP,
  };
  return result(hipSuccess);
}

API hipError_t hipDeviceGetAttribute(int *value, int attribute, int device) {
  if (!value || device) return result(hipErrorInvalidValue);
  switch (attribute) { // hipDeviceAttribute_t
  case 5: *value = CLOCK_KHZ; break;
  case 10: *value = 1; break; // cooperative launch
  case 19: *value = L2_BYTES; break;
  case 23: *value = 12; break; // compute capability, major
  case 56: *value = MOST_THREADS; break;
  case 57: *value = SIMDS * WAVES_A_SIMD * LANES; break;
  case 59: *value = MEMORY_BITS; break;
  case 60: *value = MEMORY_CLOCK_KHZ; break;
  case 63: *value = WGPS; break;
  case 74: case 75: *value = LDS_A_GROUP; break;
  case 76: *value = LDS_A_WGP; break;
  case 87: *value = LANES; break;
  default: *value = 0;
  }
  return result(hipSuccess);
}

API hipError_t hipDeviceGetName(char *name, int size, int device) {
  if (!name || size < 1 || device) return result(hipErrorInvalidValue);
  snprintf(name, (size_t)size, "%s", DEVICE_NAME);
  return result(hipSuccess);
}
API hipError_t hipDeviceTotalMem(size_t *bytes, int device) {
  if (!bytes || device) return result(hipErrorInvalidValue);
  *bytes = memory_bytes();
  return result(hipSuccess);
}

API hipError_t hipInit(u32 flags) { return result(flags ? hipErrorInvalidValue : hipSuccess); }
API hipError_t hipGetDeviceCount(int *count) { return *count = 1, result(hipSuccess); }
API hipError_t hipSetDevice(int device) { return result(device ? hipErrorInvalidValue : hipSuccess); }
API hipError_t hipGetDevice(int *device) { return *device = 0, result(hipSuccess); }
API hipError_t hipDriverGetVersion(int *version) { return *version = VERSION, result(hipSuccess); }
API hipError_t hipRuntimeGetVersion(int *version) { return *version = VERSION, result(hipSuccess); }
API hipError_t hipDeviceSynchronize(void) { return result(hipSuccess); }

API hipError_t hipMemGetInfo(size_t *left, size_t *total) {
  enter();
  *left = memory_bytes() > memory_used() ? memory_bytes() - memory_used() : 0;
  *total = memory_bytes();
  return leave(hipSuccess);
}

API hipError_t hipGetLastError(void) {
  const hipError_t error = last;
  last = hipSuccess;
  return error;
}
API hipError_t hipPeekAtLastError(void) { return last; }

API const char *hipGetErrorString(hipError_t error) {
  switch (error) {
  case hipSuccess: return "no error";
  case hipErrorInvalidValue: return "invalid argument";
  case hipErrorOutOfMemory: return "out of memory";
  case hipErrorInvalidDevicePointer: return "invalid device pointer";
  case hipErrorInvalidImage: return "device kernel image is invalid";
  case hipErrorNoBinaryForGpu: return "no kernel image is available for execution on the device";
  case hipErrorInvalidHandle: return "invalid resource handle";
  case hipErrorNotFound: return "named symbol not found";
  case hipErrorIllegalAddress:
    snprintf(error_text, sizeof error_text, "an illegal memory access was encountered: %s", last_error);
    return error_text;
  case hipErrorCooperativeLaunchTooLarge: return "too many blocks in cooperative launch";
  }
  return "unknown error";
}

#define NAMED(error) case error: return #error
API const char *hipGetErrorName(hipError_t error) {
  switch (error) {
    NAMED(hipSuccess);
    NAMED(hipErrorInvalidValue);
    NAMED(hipErrorOutOfMemory);
    NAMED(hipErrorInvalidDevicePointer);
    NAMED(hipErrorInvalidImage);
    NAMED(hipErrorNoBinaryForGpu);
    NAMED(hipErrorInvalidHandle);
    NAMED(hipErrorNotFound);
    NAMED(hipErrorIllegalAddress);
    NAMED(hipErrorCooperativeLaunchTooLarge);
  }
  return "hipErrorUnknown";
}

// The simulator's own functions; sim_memory is hip_memory.c's.
API void sim_options(u32 options, u64 seed, u64 limit) {
  enter();
  sim.options = options, sim.seed = seed, sim.limit = limit;
  leave(hipSuccess);
}

API void sim_counters(counters *out) { // since the last call
  enter();
  *out = sim.count;
  sim.count = (counters){0};
  leave(hipSuccess);
}

API void sim_last_error(char *text, u64 size) {
  enter();
  if (size) snprintf(text, size, "%s", last_error);
  leave(hipSuccess);
}

void remember_error(const char *kernel_name) { snprintf(last_error, sizeof last_error, "kernel %s: %s", kernel_name, sim.error); }
