// What the files of the library libamdhip64.so share. Names that begin with hip are those of AMD's HIP runtime API.
#pragma once
#include "codeobject.h"
#include <pthread.h>

typedef enum {
  hipSuccess = 0, hipErrorInvalidValue = 1, hipErrorOutOfMemory = 2, hipErrorInvalidDevicePointer = 17, hipErrorInvalidImage = 200,
  hipErrorNoBinaryForGpu = 209, hipErrorInvalidHandle = 400, hipErrorNotFound = 500, hipErrorIllegalAddress = 700,
  hipErrorCooperativeLaunchTooLarge = 720
} hipError_t;

enum { WGPS = 32, SIMDS = 4, WAVES_A_SIMD = 16, VGPRS_A_SIMD = 1536, VGPR_GRANULE = 24, LDS_A_WGP = 131072, LDS_A_GROUP = 65536 };
enum { LDS_GRANULE = 1024, GROUPS_A_WGP = 32, MOST_THREADS = 1024, CLOCK_KHZ = 2920000, MEMORY_CLOCK_KHZ = 1258000, MEMORY_BITS = 256 };
enum { L2_BYTES = 8 << 20 };
#define MEMORY_BYTES (32ull << 30)       // unless sim_memory says otherwise

hipError_t result(hipError_t error);     // remembered for hipGetLastError
void enter(void);                        // one call at a time
hipError_t leave(hipError_t error);      // ends that, as `result`
u64 memory_bytes(void);
u64 memory_used(void);
