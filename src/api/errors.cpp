#include "api/errors.h"

#include "api/json_writer.h"

namespace nibble::api {
namespace {

int http_status_of(StatusCode code) {
  switch (code) {
    case StatusCode::kInvalidArgument:
      return 400;
    case StatusCode::kNotFound:
      return 404;
    case StatusCode::kTooLarge:
      return 413;
    case StatusCode::kResourceExhausted:
      return 429;
    case StatusCode::kUnavailable:
      return 503;
    case StatusCode::kCancelled:
      return 503;  // not by the client, who would not read this
    case StatusCode::kInternal:
      return 500;
  }
  return 500;
}

const char* code_of(StatusCode code) {
  switch (code) {
    case StatusCode::kNotFound:
      return "model_not_found";
    case StatusCode::kTooLarge:
      return "request_too_large";
    case StatusCode::kResourceExhausted:
      return "queue_full";
    case StatusCode::kUnavailable:
      return "unavailable";
    case StatusCode::kCancelled:
      return "cancelled";
    default:
      return "";
  }
}

const char* type_of(int http_status) {
  if (http_status == 429) return "rate_limit_error";
  if (http_status >= 500) return "server_error";
  return "invalid_request_error";
}

}  // namespace

ApiError api_error(const Status& status) {
  return {http_status_of(status.code), status.message, status.param, code_of(status.code)};
}

std::string error_json(const ApiError& error) {
  std::string out;
  JsonWriter json(out);
  const auto text_or_null = [&](std::string_view name, const std::string& text) {
    json.key(name);
    text.empty() ? json.null() : json.string(text);
  };
  json.begin_object().key("error").begin_object();
  json.member("message", error.message).member("type", type_of(error.http_status));
  text_or_null("param", error.param);
  text_or_null("code", error.code);
  json.end_object().end_object();
  return out;
}

HttpResponse error_response(const ApiError& error) {
  HttpResponse response;
  response.status = error.http_status;
  response.body = error_json(error);
  if (error.http_status == 429) response.headers.emplace_back("Retry-After", "1");
  if (error.http_status == 503) response.headers.emplace_back("Retry-After", "2");
  return response;
}

}  // namespace nibble::api
