// A client's call while its answer is being generated: what the connection sees of it.
#pragma once

#include <functional>
#include <string>

#include "api/http.h"

namespace nibble::api {

// Lives on the io thread. Destroying an unfinished call ends its requests in the engine.
class Call {
 public:
  virtual ~Call() = default;

  // Called after anything below may have changed; set once, right after the call was made. Must not destroy the call.
  void on_progress(std::function<void()> notify) { notify_ = std::move(notify); }

  virtual bool streams() const = 0;
  // Nothing more will come from the engine. A stream may still have text to take.
  virtual bool finished() const = 0;
  // Streams: server-sent events for everything since the last take; may be empty.
  virtual std::string take_events() = 0;
  // Streams: unread text went over the limit and the requests were ended; the connection is to be closed.
  virtual bool overflowed() const = 0;
  // Others: the response, once finished.
  virtual HttpResponse response() = 0;
  // The client left, or the server cannot wait longer.
  virtual void abandon(const char* reason) = 0;

 protected:
  void progressed() const {
    if (notify_) notify_();
  }

 private:
  std::function<void()> notify_;
};

}  // namespace nibble::api
