// Server-sent events out of a byte stream that arrives in pieces of any size.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace nibble::bench {

// The event stream format of the HTML standard, section "Server-sent events", as far as it concerns data: lines end with LF,
// CR LF or CR; an empty line ends an event; several data lines are joined by LF; comments and other fields are skipped.
class SseReader {
 public:
  // `on_event` gets each event's data; the view lives for the call.
  explicit SseReader(std::function<void(std::string_view data)> on_event)
      : on_event_(std::move(on_event)) {}

  void push(std::string_view bytes);

 private:
  void end_line(std::string_view line);

  std::function<void(std::string_view)> on_event_;
  std::string line_;  // begun, its end has not arrived
  std::string data_;  // of the event being read
  bool has_data_ = false;
  bool after_cr_ = false;  // a LF that follows belongs to the line end already seen
};

}  // namespace nibble::bench
