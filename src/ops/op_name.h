// Names of the ops, as the start-up table and the op tests print them.
#pragma once

#include "ops/backend.h"

namespace nibble::ops {

const char* op_name(OpKind op);  // "linear"

}  // namespace nibble::ops
