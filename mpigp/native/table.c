/* The table of one build. Compiled once for each instruction set. */
#include "loops.h"

#define STRING2(x) #x
#define STRING(x) STRING2(x)
#define ENTRY(result, name, ...) ISA(name),

const loops_t ISA(loops) = {STRING(ISA_NAME), LOOPS(ENTRY)};
