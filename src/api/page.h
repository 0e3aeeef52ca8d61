// The chat page and its files, part of the executable.
#pragma once

#include <string_view>

#include "api/http.h"

namespace nibble::api {

struct PageAsset {
  std::string_view path;  // "/", "/assets/page.js"
  std::string_view content_type;
  std::string_view bytes;
};

// Null when the page has no such file.
const PageAsset* find_page_asset(std::string_view path);

// With a policy under which the page can load nothing but its own files and talk to nobody but this server.
HttpResponse page_response(const PageAsset& asset);

}  // namespace nibble::api
