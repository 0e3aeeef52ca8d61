// Tokens in, tokens out: the whole engine as an embedder (and the HTTP server) sees it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nibble/status.h"
#include "nibble/types.h"

namespace nibble {

struct EngineOptions {
  std::string model_dir;  // a folder with config.json and *.safetensors
  DeviceKind device = DeviceKind::kAuto;
  Activations activations = Activations::kAuto;
  KvDtype kv_dtype = KvDtype::kAuto;
  int threads = 0;        // CPU threads; 0: one per core this process may use
  int max_model_len = 0;  // tokens per sequence; 0: the config's max_position_embeddings
  int max_waiting = 256;  // requests that may wait; one more is refused with kResourceExhausted
  int max_num_seqs = 8;   // sequences that run together
  // Tokens that all sequences together, and the prefixes kept for later ones, have cache pages for; 0: max_model_len for each of
  // max_num_seqs.
  int max_total_tokens = 0;
  int prefill_chunk = 256;  // prompt tokens per step at most, of all sequences together
  // Of a step with running streams: prompts take no more of it than fits, so that no stream waits longer for its next token.
  double step_budget_ms = 50.0;
  // Host memory for snapshots of prefixes, from which later requests go on; 0: no prefix cache.
  std::int64_t snapshot_bytes = 256LL << 20;
  // Host memory for pages of prefixes that have to leave the cache; they come back when found again. 0: they are lost.
  std::int64_t host_cache_bytes = 0;
  bool draft = true;  // use the checkpoint's MTP or DSpark drafter where there is one
  // Drafted for each sequence and step; 0: as many as pay. At most 4 with MTP, a block with DSpark.
  int draft_tokens = 0;
  bool graphs = true;  // on a GPU: a decode step's kernels as CUDA graphs; changes no answer
};

// One row of the start-up table: which kernel serves a kind of layer.
struct KernelChoice {
  std::string layer_kind;  // "routed experts", "attention projections", ...
  std::string format;      // "MXFP4", "FP8 128x128 (E8M0)", "BF16", ...
  std::string kernel;      // "cpu.linear.avx2", ...
  std::string unit;        // "tensor core", "vector", "scalar"
  std::int64_t count = 0;  // matrices
  std::int64_t bytes = 0;
};

struct ModelInfo {
  std::string name;  // the folder's last component
  int vocab_size = 0;
  int max_model_len = 0;  // tokens
  int max_num_seqs = 0;   // sequences that run together
  int cache_tokens = 0;   // that all of them together have cache pages for
  TokenId bos_token = 0;
  TokenId eos_token = 0;
  std::int64_t weight_bytes = 0;
  std::int64_t cache_bytes = 0;
  std::string device;       // "cpu (avx2, 2 threads)"
  std::string activations;  // "exact" or "release"
  std::string kv_dtype;     // "fp32", "bf16" or "fp8"
  std::string fingerprint;  // changes when kernels, rounding or batch policy do
  bool drafting = false;
  std::vector<KernelChoice> kernels;
  std::vector<std::string>
      notes;  // one line each, for the log: contradictions, drafting absent, ...
};

// Counters and gauges; a consistent snapshot.
struct EngineStats {
  int running = 0;
  int waiting = 0;
  double kv_usage = 0.0;            // 0..1
  std::uint64_t prompt_tokens = 0;  // computed
  std::uint64_t generated_tokens = 0;
  std::uint64_t drafted_tokens = 0;
  std::uint64_t accepted_tokens = 0;
  std::uint64_t steps = 0;
  std::uint64_t cached_tokens = 0;  // of prompts, taken from the prefix cache
  std::uint64_t preemptions = 0;
  double step_seconds = 0.0;   // all steps together
  double model_seconds = 0.0;  // of these, inside the model; the rest is the scheduler's own work
  // Pages of the cache, by owner; one page holds 256 tokens.
  int pages_free = 0;
  int pages_sequences = 0;
  int pages_prefix_cache = 0;
  int pages_host = 0;  // of prefixes, in host memory
  int snapshots = 0;
  std::int64_t snapshot_bytes = 0;
};

// Thread safety: every method may be called from any thread. One scheduler thread inside owns
// sequences, caches and the batch; the others only send values to it.
class Engine {
 public:
  // Loads and checks the checkpoint, then runs one forward pass. Throws Error (CheckpointError for
  // a refused folder). `progress` (may be null) is called on the loading thread with a fraction in
  // [0, 1].
  static std::unique_ptr<Engine> load(const EngineOptions& options,
                                      const std::function<void(double)>& progress = nullptr);
  virtual ~Engine() = default;  // cancels what is left and joins the scheduler thread

  virtual const ModelInfo& info() const = 0;
  virtual EngineStats stats() const = 0;

  // Queues requests: all of them, or, where it returns an error, none. kInvalidArgument: empty
  // prompt, an id outside the vocabulary, prompt + max_tokens beyond max_model_len (message says
  // both numbers), more requests than may ever wait. kResourceExhausted: the waiting queue has no
  // room for them now. kUnavailable: stopping.
  virtual Result<std::monostate> submit(std::vector<Request> requests) = 0;
  Result<std::monostate> submit(Request request);

  // Ends a request within one step; its last event has finished == kCancelled. Unknown or finished
  // ids are ignored.
  virtual void cancel(RequestId id) = 0;

  // Forgets every prefix that no running request uses, before the next step.
  virtual void reset_prefix_cache() = 0;

  // Called on the scheduler thread after new events were queued; must not block and must not call
  // the engine. Set once, before the first submit.
  virtual void on_events(std::function<void()> notify) = 0;

  // Why the engine cannot go on, its device being lost; empty as long as it can. By then every request has had its last event
  // (kError), and new ones are refused with kUnavailable: the process should end.
  virtual std::string failure() const = 0;

  // Moves all queued events out, oldest first (may be empty).
  virtual std::vector<Event> take_events() = 0;
};

inline Result<std::monostate> Engine::submit(Request request) {
  std::vector<Request> one;
  one.push_back(std::move(request));
  return submit(std::move(one));
}

}  // namespace nibble
