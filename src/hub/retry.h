// Which failures are worth another try, and how long to wait before it.
#pragma once

#include <string>

#include "hub/http_client.h"

namespace nibble::hub {

// A broken connection or a status that a server uses for "not now": 408, 429, 500, 502, 503, 504.
bool worth_retrying(const GetResult& result);

// "answered 503", "the connection broke (...)", for messages.
std::string describe(const GetResult& result);

// Consecutive failures of one piece of work. One thread.
class Backoff {
 public:
  Backoff(const HttpClient& client, int retries) : client_(client), retries_(retries) {}

  // Waits: 0.5 s, doubled each time up to 30 s, or as long as the server's Retry-After says. False when no try is left, when
  // the server asks for more than 5 minutes, and as soon as the client is cancelled.
  bool wait(const GetResult& failure);
  void progress() { failures_ = 0; }  // what counts is failures without any progress between them

 private:
  const HttpClient& client_;
  int retries_;
  int failures_ = 0;
};

}  // namespace nibble::hub
