// A client made of a socket and nothing else, so that tests decide every byte and every moment.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace nibble::api::testing {

struct RawResponse {
  int status = 0;                              // 0: the connection ended before a response
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // chunks joined
  bool complete = false;                       // ended as its framing says
};

class RawClient {
 public:
  explicit RawClient(int port);
  ~RawClient() { close(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  // False when the server has closed.
  bool send(std::string_view bytes);
  // The next response; `head`: it answers a HEAD request and has no body.
  RawResponse read_response(bool head = false);
  // Everything up to the first occurrence of `text`, which stays unread; empty when the connection ends before.
  std::string read_until(std::string_view text);
  // True when the server closes (or resets) within the time.
  bool closed_within(std::chrono::milliseconds time);

  RawResponse get(const std::string& path);
  RawResponse post(const std::string& path, const std::string& body,
                   const std::string& more_headers = "");

  void shutdown_write();
  void close();
  void reset();  // leaves without a word of parting: RST

 private:
  bool fill();  // reads once; false at the end

  int socket_ = -1;
  std::string buffer_;
};

std::string post_text(const std::string& path, const std::string& body,
                      const std::string& more_headers = "");

}  // namespace nibble::api::testing
