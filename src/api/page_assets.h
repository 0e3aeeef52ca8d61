// Made at build time by page/embed.cmake from the files in page/.
#pragma once

#include <span>

#include "api/page.h"

namespace nibble::api {

std::span<const PageAsset> page_assets();

}  // namespace nibble::api
