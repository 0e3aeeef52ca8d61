// The three kinds of failure (docs/architecture.md, "Failures"):
//   a broken invariant            NIBBLE_CHECK, src/base/check.h: prints values and stops the
//   process load, configuration, device   throws nibble::Error, which carries the exit code it
//   stands for what a caller can expect      Result<T> with a short list of codes
#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

namespace nibble {

// Process exit codes: 0 asked-for stop, 1 failed, 2 bad usage, 3 refused checkpoint.
enum class ExitCode : int { kOk = 0, kFailed = 1, kUsage = 2, kRefusedCheckpoint = 3 };

// Thrown while loading or configuring. The message names the file, tensor or key, what was expected
// and what was found.
class Error : public std::runtime_error {
 public:
  Error(ExitCode exit_code, const std::string& message)
      : std::runtime_error(message), exit_code_(exit_code) {}
  ExitCode exit_code() const { return exit_code_; }

 private:
  ExitCode exit_code_;
};

// A checkpoint that will not be served: exit code 3.
class CheckpointError : public Error {
 public:
  explicit CheckpointError(const std::string& message)
      : Error(ExitCode::kRefusedCheckpoint, message) {}
};

// The device that computes has failed for good: whatever this process asks of it from now on fails too. Open requests are told,
// then the process ends.
class DeviceLost : public Error {
 public:
  explicit DeviceLost(const std::string& message) : Error(ExitCode::kFailed, message) {}
};

enum class StatusCode {
  kInvalidArgument,    // the request itself is wrong: HTTP 400
  kNotFound,           // no such model: HTTP 404
  kTooLarge,           // body over the limit: HTTP 413
  kResourceExhausted,  // queue or cache full, try again later: HTTP 429
  kUnavailable,        // loading, draining or stopped: HTTP 503
  kCancelled,          // the client left
  kInternal,           // a step failed for this request alone: HTTP 500
};

struct Status {
  StatusCode code = StatusCode::kInternal;
  std::string message;
  std::string param;  // the request field at fault, may be empty
};

// A value or the Status that explains its absence.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : state_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const Status& status() const { return std::get<1>(state_); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace nibble
