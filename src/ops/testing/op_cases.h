// One table of cases an op, run on any backend against the reference.
//
// Inputs are random (fresh for each seed), outputs are poisoned with NaN before the op, and every
// element is compared: floats within a bound derived from the operands (op_table.h), integers
// exactly unless two candidates are closer than rounding can tell apart.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ops/backend.h"

namespace nibble::ops::testing {

struct OpReport {
  int cases = 0;
  std::int64_t values = 0;            // compared
  std::vector<std::string> failures;  // op, case, index, expected, found, bound; at most one a case
  std::string to_string() const;      // all failures, one a line
};

// The environment's NIBBLE_TEST_SEED, else a fresh one; the same for the whole process, and printed
// once, so that a failure can be run again.
std::uint64_t case_seed();

// Runs the whole table. Both backends have the same numerics. Memory they allocate for it stays
// theirs.
OpReport run_op_cases(Backend& subject, Backend& reference, std::uint64_t seed);

}  // namespace nibble::ops::testing
