// The resident kernel of steps of one token: nothing in it needs the registers of several.
#define GR_RESIDENT
#include "mega.c"
