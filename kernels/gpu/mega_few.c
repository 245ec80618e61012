// The resident kernel of steps of up to 16 tokens.
#define GR_RESIDENT
#define GR_FEW
#include "mega.c"
