#define KVARENA_JSON_INSTANCE template
#include "cmake/json_instances.h"
