// The system's libcurl, opened when it is first needed: the executable starts on a machine without it, a command that
// needs no network does not load its thirty libraries, and no copy of curl or OpenSSL travels in a package.
#pragma once

// Its type checks wrap the functions in macros, which pointers of the same name do not go through.
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>

#undef curl_easy_setopt
#undef curl_easy_getinfo

namespace nibble::hub {

// The functions used, under their own names. Their contracts are libcurl's.
struct CurlLibrary {
  decltype(&::curl_global_init) global_init;
  decltype(&::curl_easy_init) easy_init;
  decltype(&::curl_easy_setopt) easy_setopt;
  decltype(&::curl_easy_perform) easy_perform;
  decltype(&::curl_easy_getinfo) easy_getinfo;
  decltype(&::curl_easy_strerror) easy_strerror;
  decltype(&::curl_easy_reset) easy_reset;
  decltype(&::curl_easy_cleanup) easy_cleanup;
  decltype(&::curl_slist_append) slist_append;
  decltype(&::curl_slist_free_all) slist_free_all;
};

// Opened and initialised once a process, by whichever thread comes first; never closed. Throws Error(kFailed) that names
// the package when there is no libcurl.so.4.
const CurlLibrary& curl();

}  // namespace nibble::hub
