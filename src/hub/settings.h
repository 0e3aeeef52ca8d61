// Where the hub is and where its files lie on this machine, from the environment that its other tools read.
#pragma once

#include <filesystem>
#include <string>

#include "hub/url.h"

namespace nibble::hub {

struct Settings {
  Url endpoint;       // HF_ENDPOINT; target: "" or a path without a trailing slash
  std::string token;  // HF_TOKEN, else the file HF_TOKEN_PATH (HF_HOME/token); may be empty
  std::filesystem::path cache;  // hub_cache_folder()
  // SSL_CERT_FILE, else CURL_CA_BUNDLE: certificates to trust instead of the system's; may be empty
  std::string ca_file;
  bool offline = false;  // HF_HUB_OFFLINE is 1, on, yes or true
};

// Throws Error(kUsage) for an endpoint that is no http or https URL and for a token with blanks or control characters in it
// (the token itself is in no message).
Settings settings_from_environment();

// HF_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub.
std::filesystem::path hub_cache_folder();

}  // namespace nibble::hub
