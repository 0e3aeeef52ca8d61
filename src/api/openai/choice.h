// One choice of an answer: a generation, and what chat and completions do alike with its events.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "api/engine_client.h"
#include "api/errors.h"
#include "api/json_writer.h"

namespace nibble::api::openai {

class Choice : public EventSink {
 public:
  // `changed` is called after each event.
  Choice(int index, std::function<void()> changed) : index_(index), changed_(std::move(changed)) {}

  void own(Generation generation) { generation_ = std::move(generation); }
  void abandon(const char* reason) { generation_.abandon(reason); }
  void on_event(Event&& event) final;

  bool finished() const { return finished_; }  // an error is an end, too
  const std::optional<ApiError>& error() const { return error_; }
  int cached_tokens() const { return cached_tokens_; }
  int completion_tokens() const { return completion_tokens_; }  // looked at
  virtual std::optional<int> reasoning_tokens() const { return std::nullopt; }

  // Of what was not taken yet.
  virtual std::size_t unread_bytes() const = 0;
  // Streams: appends the choice objects of as many chunks as it takes to tell what came since the last call.
  virtual void take_chunks(std::vector<std::string>& objects) = 0;
  // Others: the choice object, once finished.
  virtual void write_whole(JsonWriter& json) = 0;

 protected:
  int index() const { return index_; }
  const char* finish_reason() const { return finish_reason_; }

  virtual void add_prompt(const std::vector<GeneratedToken>&) {}
  // True: the choice is complete, no further token is wanted.
  virtual bool add_token(const GeneratedToken& token) = 0;
  // The engine has finished: what was held back is text. True: it completes the choice, whatever the engine ended for.
  virtual bool flush() = 0;
  // The finish_reason of a choice that was not cut off.
  virtual const char* natural_end() const { return "stop"; }

 private:
  void finish(const Event& event);
  void end(const char* reason);

  int index_;
  std::function<void()> changed_;
  Generation generation_;
  bool finished_ = false;
  const char* finish_reason_ = "";
  std::optional<ApiError> error_;
  int cached_tokens_ = 0;
  int completion_tokens_ = 0;
};

}  // namespace nibble::api::openai
