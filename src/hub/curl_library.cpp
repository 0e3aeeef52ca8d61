#include "hub/curl_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "nibble/status.h"

namespace nibble::hub {
namespace {

constexpr const char* kLibrary = "libcurl.so.4";

template <typename Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr)
    throw Error(ExitCode::kFailed, fmt::format("{} has no function {}", kLibrary, name));
}

CurlLibrary open_library() {
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    throw Error(ExitCode::kFailed,
                fmt::format("the network needs {} of the system (package libcurl4 on Debian 12, "
                            "libcurl4t64 on Ubuntu 24.04): {}",
                            kLibrary, reason ? reason : "not found"));
  }
  CurlLibrary curl{};
  find(library, "curl_global_init", curl.global_init);
  find(library, "curl_easy_init", curl.easy_init);
  find(library, "curl_easy_setopt", curl.easy_setopt);
  find(library, "curl_easy_perform", curl.easy_perform);
  find(library, "curl_easy_getinfo", curl.easy_getinfo);
  find(library, "curl_easy_strerror", curl.easy_strerror);
  find(library, "curl_easy_reset", curl.easy_reset);
  find(library, "curl_easy_cleanup", curl.easy_cleanup);
  find(library, "curl_slist_append", curl.slist_append);
  find(library, "curl_slist_free_all", curl.slist_free_all);
  if (const CURLcode code = curl.global_init(CURL_GLOBAL_DEFAULT); code != CURLE_OK)
    throw Error(ExitCode::kFailed, fmt::format("{}: {}", kLibrary, curl.easy_strerror(code)));
  return curl;
}

}  // namespace

const CurlLibrary& curl() {
  static const CurlLibrary library = open_library();
  return library;
}

}  // namespace nibble::hub
