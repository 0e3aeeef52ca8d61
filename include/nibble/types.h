// The shared nouns: what a client asks for and what comes back, in tokens. No text, no JSON, no
// tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nibble/status.h"

namespace nibble {

using TokenId = std::int32_t;
using RequestId = std::uint64_t;

// kAuto: the GPU where the binary was built for one and the machine has one, else the CPU.
enum class DeviceKind { kAuto, kRef, kCpu, kCuda };

// What is rounded besides the weights (deepseek-v4.md, section 6).
//   kExact    nothing: fp32 activations
//   kRelease  the rounding the release was trained with
//   kAuto     kRelease on a GPU or when config.json has `activation_scheme`, else kExact
enum class Activations { kAuto, kExact, kRelease };

// How cached rows are stored. kAuto is kFp32 together with exact activations, else kFp8.
//   kFp8: 584-byte rows (448 E4M3 + 64 bf16 + scales) and FP4 index keys after a Hadamard rotation
enum class KvDtype { kAuto, kFp32, kBf16, kFp8 };

struct SamplingParams {
  float temperature = 1.0f;  // 0: greedy, the lowest id wins a tie
  float top_p = 1.0f;        // (0, 1]
  int top_k = 0;             // the k most likely; 0: all
  float min_p = 0.0f;        // [0, 1]: at least this share of the most likely token's probability
  // Of a token that was generated before: subtracted once, and once for each time.
  float presence_penalty = 0.0f;   // [-2, 2]
  float frequency_penalty = 0.0f;  // [-2, 2]
  // Of a token in the prompt or generated: a positive logit is divided by it, a negative one multiplied.
  float repetition_penalty = 1.0f;                    // > 0
  std::vector<std::pair<TokenId, float>> logit_bias;  // added to the logits; -100 and less bans
  std::uint64_t seed = 0;  // random numbers are a function of (seed, position)
  int max_tokens = 16;     // generated tokens, >= 0
  int logprobs = -1;       // -1: none; k >= 0: the token's own log-probability and the k best
  bool ignore_eos = false;
};

struct Request {
  RequestId id = 0;             // unique among the requests alive; chosen by the caller
  std::vector<TokenId> prompt;  // at least one token, every id inside the vocabulary
  SamplingParams sampling;
  std::string cache_salt;  // requests share computed prefixes only with those of the same salt
  bool prompt_logprobs =
      false;  // log-probabilities of the prompt's own tokens (with sampling.logprobs alternatives)
};

struct TokenLogprob {
  TokenId token = 0;
  // Natural log, of the model's distribution at temperature 1, before penalties, bias and cuts.
  float logprob = 0.0f;
};

struct GeneratedToken {
  TokenId token = 0;
  // Set when the request asked for log-probabilities (never for the first prompt token).
  std::optional<float> logprob;
  std::vector<TokenLogprob> top;  // sampling.logprobs entries, best first
};

enum class FinishReason { kStop, kLength, kCancelled, kError };

struct Usage {
  int prompt_tokens = 0;
  int cached_tokens = 0;  // of the prompt, taken from the prefix cache
  int completion_tokens = 0;
  int drafted_tokens = 0;
  int accepted_tokens = 0;
};

// What the engine says about a request; events of one request arrive in order, and exactly one has
// `finished` set.
struct Event {
  RequestId request = 0;
  std::vector<GeneratedToken> prompt;  // once, before any token, when prompt_logprobs was asked for
  std::vector<GeneratedToken>
      tokens;  // newly generated; an end-of-sequence token is not among them
  std::optional<FinishReason> finished;
  Status error;  // meaningful when finished == kError
  Usage usage;   // so far
};

}  // namespace nibble
