// Copies of the backends that compute on the host: they are the same for all of them.
#pragma once

#include "ops/attention.h"
#include "ops/copy.h"

namespace nibble::ops::host {

void gather_rows(const GatherRowsArgs& args);
void save_ranges(std::span<const ByteRange> ranges, std::span<std::byte> host);
void load_ranges(std::span<const ByteRange> ranges, std::span<const std::byte> host);
void window_commit(const WindowCommitArgs& args);

}  // namespace nibble::ops::host
