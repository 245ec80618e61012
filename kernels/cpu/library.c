// The library that Python loads: pool of threads, packing of weights.
#include "engine.c"
#include "pool.c"
