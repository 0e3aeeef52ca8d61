// Failures in the shape OpenAI's clients expect: {"error": {"message", "type", "param", "code"}}.
#pragma once

#include <exception>
#include <string>

#include "api/http.h"
#include "nibble/status.h"

namespace nibble::api {

struct ApiError {
  int http_status = 400;
  std::string message;
  std::string param;  // the request field at fault, as a path: "messages[2].content"; empty: null
  std::string code;   // OpenAI's word for the kind, "model_not_found"; empty: null
};

ApiError api_error(const Status& status);

// The error object's text, also for the `data:` line of a stream that breaks.
std::string error_json(const ApiError& error);

// 429 and 503 carry Retry-After.
HttpResponse error_response(const ApiError& error);

// Thrown while a request is read; caught by the route wrapper (Service) and nowhere else.
class RequestError : public std::exception {
 public:
  explicit RequestError(ApiError error) : error_(std::move(error)) {}
  // A 400 about one field.
  RequestError(std::string param, std::string message, std::string code = "")
      : error_{400, std::move(message), std::move(param), std::move(code)} {}

  const ApiError& error() const { return error_; }
  const char* what() const noexcept override { return error_.message.c_str(); }

 private:
  ApiError error_;
};

}  // namespace nibble::api
