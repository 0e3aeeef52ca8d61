#include "api/page.h"

#include <string>

#include "api/page_assets.h"

namespace nibble::api {

const PageAsset* find_page_asset(std::string_view path) {
  for (const PageAsset& asset : page_assets())
    if (asset.path == path) return &asset;
  return nullptr;
}

HttpResponse page_response(const PageAsset& asset) {
  HttpResponse response;
  response.content_type = asset.content_type;
  response.headers = {
      {"Content-Security-Policy",
       "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src "
       "'self'; "
       "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
      {"X-Content-Type-Options", "nosniff"},
      {"Referrer-Policy", "no-referrer"},
      {"Cross-Origin-Opener-Policy", "same-origin"},
      {"Cache-Control", "no-cache"},
  };
  response.body = asset.bytes;
  return response;
}

}  // namespace nibble::api
