// HTTP GET with libcurl: redirects followed by hand, because the token may not leave the hub's own host.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hub/url.h"

namespace nibble::hub {

// Bytes [begin, end) of a file.
struct ByteRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
  bool operator==(const ByteRange&) const = default;
};

// Names in lower case; of several headers with one name, the last.
using Headers = std::map<std::string, std::string>;

// What arrived before the body.
struct ResponseHead {
  int status = 0;
  Headers headers;
  Headers
      hub_headers;  // of the hub's own answer: `headers`, or those of the redirect that led away
  Url url;          // that gave this answer, after redirects

  std::string header(const std::string& name) const;      // "" when absent
  std::string hub_header(const std::string& name) const;  // "" when absent
  std::int64_t content_length() const;                    // -1 when absent or no number
  std::string etag() const;  // as sent, with its quotes; "" when absent
  // Content-Range: "bytes A-B/TOTAL". Nothing when absent or of another form.
  struct Part {
    ByteRange range;
    std::int64_t total = 0;
  };
  std::optional<Part> content_range() const;
};

struct GetRequest {
  Url url;
  std::optional<ByteRange> range;
  std::string if_range;             // an entity tag; "" for none
  std::int64_t max_body_bytes = 0;  // a longer body ends the request: kTooLong
  int total_timeout_s = 0;          // for the whole request; 0: only the stall limit
  // Both are called on the requesting thread, and false ends the request as kStopped. on_head comes once, before on_body;
  // null accepts everything. on_body null: the body is collected in GetResult::body.
  std::function<bool(const ResponseHead&)> on_head;
  std::function<bool(std::span<const std::byte>)> on_body;
};

enum class GetOutcome {
  kComplete,   // the whole answer arrived (of whatever status)
  kStopped,    // on_head or on_body said so
  kTooLong,    // the body was longer than max_body_bytes
  kCancelled,  // ClientOptions::cancelled said so
  kBroken,     // no connection, a cut line, a stall: worth another try
  kRefused,    // a redirect that is not followed: not worth another try
};

struct GetResult {
  GetOutcome outcome = GetOutcome::kBroken;
  std::string problem;    // for kBroken and kRefused
  ResponseHead head;      // status 0 when nothing arrived
  std::string body;       // without on_body
  int retry_after_s = 0;  // the server's Retry-After; 0: none
};

struct ClientOptions {
  Url endpoint;                     // the only place the token goes to: same scheme, host and port
  std::string token;                // may be empty
  std::string ca_file;              // certificates to trust; "": the system's
  int stall_limit_s = 30;           // under 100 bytes/s for so long, or no connection: kBroken
  std::function<bool()> cancelled;  // asked about once a second or more often; may be null
};

// Callable from several threads at once; each request runs on its caller's thread, over connections that are kept open.
class HttpClient {
 public:
  explicit HttpClient(ClientOptions options);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Follows up to 5 redirects (never from https to http). Whatever goes wrong is in the result; exceptions of the callbacks
  // come out as they are.
  GetResult get(const GetRequest& request);

  // Ends every request that runs and every later one as kCancelled. Callable from any thread.
  void cancel() { cancelled_ = true; }
  bool cancelled() const { return cancelled_ || (options_.cancelled && options_.cancelled()); }
  const Url& endpoint() const { return options_.endpoint; }

 private:
  struct Exchange;
  GetResult get_once(const GetRequest& request, const Url& url, const Headers* hub_headers);
  void* take_handle();
  void give_handle(void* handle);

  ClientOptions options_;
  std::atomic<bool> cancelled_{false};
  std::mutex mutex_;
  std::vector<void*> idle_;  // CURL*: each keeps its connections
};

}  // namespace nibble::hub
