// `nibble run`: one answer, or a chat in the terminal. Only answers go to stdout.
#include <fmt/format.h>
#include <unistd.h>

#include <condition_variable>
#include <csignal>
#include <iostream>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/load.h"
#include "cli/model_path.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "nibble/status.h"
#include "text/output_parser.h"
#include "text/utf8.h"

namespace nibble::cli {
namespace {

volatile std::sig_atomic_t interrupted = 0;

struct RunOptions {
  ModelOptions model;
  std::optional<std::string> text;  // nothing: standard input, or a chat on a terminal
  // What is not given is the checkpoint's.
  std::optional<float> temperature, top_p, min_p, presence_penalty, frequency_penalty,
      repetition_penalty;
  std::optional<int> top_k;
  std::optional<std::uint64_t> seed;
  int max_tokens = 0;  // 0: as many as the context holds
  bool thinking = false;
};

// What the engine's thread touches; it may still be in there when the chat is gone.
struct Wake {
  std::mutex mutex;
  std::condition_variable changed;
  bool ready = false;  // under mutex
};

// One conversation with a model, a turn at a time.
class Chat {
 public:
  Chat(api::ServedModel& model, const RunOptions& options) : model_(model), options_(options) {
    if (!model.encoder)
      throw Error(ExitCode::kFailed, "chat is unavailable: " + model.encoder_note);
    text::ThinkingSwitches switches;
    switches.thinking = options.thinking;
    const auto thinking = text::resolve_thinking(model.encoder->profile(), switches);
    if (!thinking) throw Error(ExitCode::kUsage, thinking.status().message);
    request_.thinking = *thinking;
    model.engine->on_events([wake = wake_] {
      const std::lock_guard lock(wake->mutex);
      wake->ready = true;
      wake->changed.notify_one();
    });
  }

  // Prints the answer as it comes (thoughts to stderr) and remembers the turn. Throws Error, and then has forgotten it.
  void turn(const std::string& user) {
    text::Message message;
    message.role = text::Role::kUser;
    message.content.push_back({"text", user});
    request_.messages.push_back(message);
    text::Message answer;
    answer.role = text::Role::kAssistant;
    try {
      answer.content.push_back({"text", generate()});
    } catch (...) {
      request_.messages.pop_back();
      throw;
    }
    request_.messages.push_back(answer);
  }

 private:
  SamplingParams sampling() const {
    SamplingParams params = model_.defaults.sampling;
    params.temperature = options_.temperature.value_or(params.temperature);
    params.top_p = options_.top_p.value_or(params.top_p);
    params.top_k = options_.top_k.value_or(params.top_k);
    params.min_p = options_.min_p.value_or(params.min_p);
    params.presence_penalty = options_.presence_penalty.value_or(params.presence_penalty);
    params.frequency_penalty = options_.frequency_penalty.value_or(params.frequency_penalty);
    params.repetition_penalty = options_.repetition_penalty.value_or(params.repetition_penalty);
    params.seed = options_.seed ? *options_.seed : std::random_device{}();
    return params;
  }

  std::string generate() {
    const auto prompt = model_.encoder->encode(request_);
    if (!prompt) throw Error(ExitCode::kUsage, prompt.status().message);
    Request request;
    request.id = ++last_id_;
    request.prompt = *prompt;
    request.sampling = sampling();
    const int room = model_.engine->info().max_model_len - static_cast<int>(prompt->size());
    if (room < 1)
      throw Error(ExitCode::kUsage,
                  fmt::format("{} tokens leave no room for an answer in a context of {}",
                              prompt->size(), model_.engine->info().max_model_len));
    request.sampling.max_tokens = options_.max_tokens > 0 ? options_.max_tokens : room;
    if (const auto accepted = model_.engine->submit(request); !accepted)
      throw Error(ExitCode::kFailed, accepted.status().message);

    text::OutputParserOptions parser_options;
    parser_options.starts_in_reasoning = request_.thinking.mode == text::ThinkingMode::kThinking;
    text::OutputParser parser(*model_.encoder, parser_options);
    std::string answer;
    const auto show = [&](const text::OutputDelta& delta) {
      answer += delta.content;
      std::cerr << delta.reasoning << std::flush;
      std::cout << delta.content << std::flush;
    };
    interrupted = 0;
    for (bool going = true, cancelled = false; going;) {
      {
        // A signal does not wake a condition variable: look at the flag twice a second at least.
        std::unique_lock lock(wake_->mutex);
        wake_->changed.wait_for(lock, std::chrono::milliseconds(200), [&] { return wake_->ready; });
        wake_->ready = false;
      }
      if (interrupted && !cancelled) {
        model_.engine->cancel(request.id);
        cancelled = true;
      }
      for (const Event& event : model_.engine->take_events()) {
        for (const GeneratedToken& token : event.tokens) show(parser.push(token.token));
        if (event.finished == FinishReason::kError)
          throw Error(ExitCode::kFailed, event.error.message);
        going = going && !event.finished;
      }
    }
    show(parser.finish());
    std::cout << std::endl;
    return answer;
  }

  api::ServedModel& model_;
  const RunOptions& options_;
  text::ChatRequest request_;
  RequestId last_id_ = 0;
  const std::shared_ptr<Wake> wake_ = std::make_shared<Wake>();
};

void require_utf8(const std::string& text) {
  if (const auto at = text::first_invalid_utf8(text))
    throw Error(ExitCode::kUsage, fmt::format("the text is not valid UTF-8: byte {}", *at));
}

std::string read_standard_input() {
  std::string text{std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

// One fault does not end a conversation.
void converse(Chat& chat, const std::string& name) {
  std::cerr << fmt::format("{}; an empty line or Ctrl-D ends the chat, Ctrl-C an answer\n", name);
  std::string line;
  while (std::cerr << "> " << std::flush && std::getline(std::cin, line) && !line.empty()) {
    try {
      require_utf8(line);
      chat.turn(line);
    } catch (const Error& error) {
      std::cerr << "nibble: " << error.what() << "\n";
    }
  }
}

int run(const RunOptions& options) {
  const bool interactive = !options.text && isatty(STDIN_FILENO);
  std::string text;
  if (!interactive) {
    text = options.text ? *options.text : read_standard_input();
    if (text.empty())
      throw Error(ExitCode::kUsage, "no text to answer: give TEXT or write it to standard input");
    require_utf8(text);
  }
  const auto model = [&] {
    Progress progress("loading");
    return load_served_model(options.model, [&](double fraction) { progress.show(fraction); });
  }();
  std::signal(SIGINT, [](int) { interrupted = 1; });
  Chat chat(*model, options);
  if (interactive)
    converse(chat, require_model(options.model.model).name);
  else
    chat.turn(text);
  return static_cast<int>(ExitCode::kOk);
}

// One word alone is the model if there is such a model, else the text.
void read_words(const std::vector<std::string>& words, RunOptions& options) {
  if (words.size() == 1) {
    if (names_model(words[0]))
      options.model.model = words[0];
    else
      options.text = words[0];
  } else if (words.size() == 2) {
    options.model.model = words[0];
    options.text = words[1];
  }
}

}  // namespace

Command add_run(CLI::App& app) {
  struct State {
    RunOptions options;
    std::vector<std::string> words;
    std::string log = "warn";
  };
  const auto state = std::make_shared<State>();
  RunOptions& options = state->options;
  options.model.engine.max_num_seqs = 1;
  CLI::App* command = app.add_subcommand("run", "one answer, or a chat in the terminal");
  command
      ->add_option("MODEL TEXT", state->words,
                   "model and text; one word alone is the model if there is such a model")
      ->expected(0, 2);
  command->add_option("--temperature", options.temperature, "0: greedy (default: the checkpoint's)")
      ->check(CLI::Range(0.0, 100.0));
  command->add_option("--top-p", options.top_p, "share of the probability that is drawn from")
      ->check(CLI::Range(1e-6, 1.0));
  command->add_option("--top-k", options.top_k, "most likely tokens drawn from (0: all)")
      ->check(CLI::Range(0, 1 << 24));
  command
      ->add_option("--min-p", options.min_p, "least share of the most likely token's probability")
      ->check(CLI::Range(0.0, 1.0));
  command->add_option("--presence-penalty", options.presence_penalty, "of tokens generated before")
      ->check(CLI::Range(-2.0, 2.0));
  command
      ->add_option("--frequency-penalty", options.frequency_penalty,
                   "of tokens generated before, each time")
      ->check(CLI::Range(-2.0, 2.0));
  command
      ->add_option("--repetition-penalty", options.repetition_penalty,
                   "of tokens in the prompt or generated (1: none)")
      ->check(CLI::Range(1e-3, 10.0));
  command->add_option("--max-tokens", options.max_tokens, "longest answer")
      ->check(CLI::Range(1, 1 << 24));
  command->add_option("--seed", options.seed, "same seed, same answer");
  command->add_flag("--thinking", options.thinking,
                    "let the model think first (thoughts go to stderr)");
  add_model_options(*command, options.model, state->log);
  return {command, [state] {
            init_log(state->log);
            read_words(state->words, state->options);
            return run(state->options);
          }};
}

}  // namespace nibble::cli
