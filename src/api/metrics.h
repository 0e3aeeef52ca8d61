// What /metrics shows, in Prometheus' text form.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "nibble/engine.h"

namespace nibble::api {

// Counting is for the io thread; the text too.
class Metrics {
 public:
  explicit Metrics(const std::string& model_name);
  ~Metrics();

  void observe_first_token(double seconds);  // since the request was complete
  void observe_tokens(double seconds,
                      std::size_t count);  // gap before each of `count` tokens after the first
  void count_cancelled();

  // `stats`: the engine's, all zero while there is none.
  std::string text(const EngineStats& stats) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace nibble::api
