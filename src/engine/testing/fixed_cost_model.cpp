#include "engine/testing/fixed_cost_model.h"

#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace nibble::engine::testing {
namespace {

constexpr std::uint64_t kEmpty = 0x6e6962626c65u;
constexpr std::uint64_t kChoice = 1, kCoin = 2;  // what a hash is used for

// The finalizer of SplitMix64 (Steele, Lea, Flood, 2014).
std::uint64_t mixed(std::uint64_t z) {
  z += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

std::uint64_t appended(std::uint64_t hash, TokenId token) {
  return mixed(hash ^ (static_cast<std::uint64_t>(token) << 1 | 1));
}

TokenId choice(const std::vector<TokenId>& alphabet, std::uint64_t hash) {
  return alphabet[static_cast<std::size_t>(mixed(hash + kChoice) % alphabet.size())];
}

double thread_cpu_s() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Adds the CPU time of a scope to a sum.
class CpuMeter {
 public:
  explicit CpuMeter(double& sum_s) : sum_s_(sum_s), begin_s_(thread_cpu_s()) {}
  ~CpuMeter() { sum_s_ += thread_cpu_s() - begin_s_; }
  CpuMeter(const CpuMeter&) = delete;
  CpuMeter& operator=(const CpuMeter&) = delete;

 private:
  double& sum_s_;
  double begin_s_;
};

void sleep_us(double us) {
  // The kernel may be 50 us late by default, which would be a step's cost of its own.
  thread_local const int slack = prctl(PR_SET_TIMERSLACK, 1000UL);
  (void)slack;
  const auto ns = static_cast<long>(us * 1e3);
  const timespec time{ns / 1000000000, ns % 1000000000};
  clock_nanosleep(CLOCK_MONOTONIC, 0, &time, nullptr);
}

bool is_allowed(std::span<const std::uint64_t> allowed, TokenId token) {
  const auto word = static_cast<std::size_t>(token) / 64;
  return word < allowed.size() && (allowed[word] >> (token % 64) & 1u) != 0;
}

}  // namespace

FixedCostModel::FixedCostModel(FixedCostOptions options)
    : options_(std::move(options)), slots_(static_cast<std::size_t>(options_.limits.slots)) {
  NIBBLE_CHECK(options_.alphabet.size() >= 2, "{} tokens to draw from", options_.alphabet.size());
  const int ring = options_.limits.max_step_rows + options_.limits.max_draft + 1;
  for (Slot& slot : slots_) slot.hashes.resize(static_cast<std::size_t>(ring));
  info_.name = "fixed-cost";
  info_.vocab_size = options_.vocab_size;
  info_.max_model_len = options_.max_model_len;
  info_.max_num_seqs = options_.limits.slots;
  info_.cache_tokens = options_.limits.pages * ops::kPageTokens;
  info_.bos_token = options_.bos_token;
  info_.eos_token = options_.eos_token;
  info_.device = "none: a fixed cost a step";
  info_.activations = "none";
  info_.kv_dtype = "none";
  info_.fingerprint = "fixed-cost";
  info_.drafting = options_.limits.max_draft > 0;
}

std::uint64_t& FixedCostModel::hash_at(int slot, int length) {
  std::vector<std::uint64_t>& ring = slots_[static_cast<std::size_t>(slot)].hashes;
  return ring[static_cast<std::size_t>(length) % ring.size()];
}

std::uint64_t FixedCostModel::known_hash(int slot, int length, int behind) {
  NIBBLE_CHECK(slot >= 0 && slot < options_.limits.slots, "slot {}", slot);
  if (length == 0) return kEmpty;
  const Slot& s = slots_[static_cast<std::size_t>(slot)];
  NIBBLE_CHECK(length >= std::max(s.oldest, s.length - behind) && length <= s.length,
               "slot {}: position {}, but it has seen {} tokens, from {} on", slot, length,
               s.length, s.oldest);
  return hash_at(slot, length);
}

void FixedCostModel::forward(const ops::Batch& batch) {
  if (options_.on_step) {
    const double now_s = thread_cpu_s();
    options_.on_step(batch.rows(), (now_s - last_forward_cpu_s_ - model_cpu_s_) * 1e6);
    last_forward_cpu_s_ = now_s;
    model_cpu_s_ = 0.0;
  }
  {
    const CpuMeter meter(model_cpu_s_);
    NIBBLE_CHECK(batch.rows() <= options_.limits.max_step_rows, "{} rows", batch.rows());
    row_hashes_.clear();
    row_positions_.clear();
    for (const ops::Segment& segment : batch.segments) {
      NIBBLE_CHECK(static_cast<std::size_t>(segment.first_row) == row_hashes_.size(),
                   "segment at row {} after {} rows", segment.first_row, row_hashes_.size());
      std::uint64_t hash = known_hash(segment.slot, segment.position, options_.limits.max_draft);
      Slot& slot = slots_[static_cast<std::size_t>(segment.slot)];
      if (segment.position == 0) slot.oldest = 0;
      for (int i = 0; i < segment.rows; ++i) {
        const int length = segment.position + i + 1;
        hash = appended(hash, batch.ids[row_hashes_.size()]);
        hash_at(segment.slot, length) = hash;
        row_hashes_.push_back(hash);
        row_positions_.push_back(length - 1);
      }
      slot.length = segment.position + segment.rows;
      NIBBLE_CHECK(slot.length <= options_.max_model_len, "{} tokens", slot.length);
    }
  }
  spend(options_.base_us + options_.per_row_us * static_cast<double>(batch.rows()));
}

std::uint64_t FixedCostModel::row_hash(std::int32_t row) const {
  NIBBLE_CHECK(row >= 0 && static_cast<std::size_t>(row) < row_hashes_.size(), "row {} of {}", row,
               row_hashes_.size());
  return row_hashes_[static_cast<std::size_t>(row)];
}

TokenId FixedCostModel::token_after(std::uint64_t hash) const {
  return choice(options_.alphabet, hash);
}

std::vector<Result<GeneratedToken>> FixedCostModel::draw(std::span<const DrawRow> rows) {
  const CpuMeter meter(model_cpu_s_);
  std::vector<Result<GeneratedToken>> drawn;
  drawn.reserve(rows.size());
  for (const DrawRow& row : rows) {
    TokenId token = token_after(row_hash(row.row));
    const int position = row_positions_[static_cast<std::size_t>(row.row)];
    NIBBLE_CHECK(row.draw.position == static_cast<std::uint64_t>(position) + 1,
                 "a token for position {} from the row of position {}", row.draw.position,
                 position);
    int tries = 0;
    const auto allowed = row.draw.allowed;
    while (!allowed.empty() && !is_allowed(allowed, token) && tries++ < options_.vocab_size)
      token = (token + 1) % options_.vocab_size;
    if (tries > options_.vocab_size)
      drawn.emplace_back(Status{StatusCode::kInternal, "no token is allowed", ""});
    else
      drawn.emplace_back(with_logprobs(token, row.draw.params->logprobs));
  }
  return drawn;
}

GeneratedToken FixedCostModel::with_logprobs(TokenId token, int alternatives) const {
  GeneratedToken out;
  out.token = token;
  if (alternatives < 0) return out;
  const float logprob = -std::log(static_cast<float>(options_.alphabet.size()));
  out.logprob = logprob;
  const auto count = std::min(static_cast<std::size_t>(alternatives), options_.alphabet.size());
  for (std::size_t i = 0; i < count; ++i) out.top.push_back({options_.alphabet[i], logprob});
  return out;
}

std::vector<GeneratedToken> FixedCostModel::score(std::int32_t begin,
                                                  std::span<const TokenId> tokens,
                                                  int alternatives) {
  const CpuMeter meter(model_cpu_s_);
  std::vector<GeneratedToken> scored;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    (void)row_hash(begin + static_cast<std::int32_t>(i));
    scored.push_back(with_logprobs(tokens[i], alternatives));
  }
  return scored;
}

std::vector<TokenId> FixedCostModel::draft(const ops::Batch& batch, std::span<const DraftRow> rows,
                                           int depth) {
  std::vector<TokenId> proposals;
  {
    const CpuMeter meter(model_cpu_s_);
    NIBBLE_CHECK(depth <= options_.limits.max_draft, "depth {}", depth);
    proposals.reserve(rows.size() * static_cast<std::size_t>(depth));
    for (const DraftRow& row : rows) {
      std::uint64_t hash =
          appended(row_hash(row.row), batch.ids[static_cast<std::size_t>(row.row)]);
      for (int i = 0; i < depth; ++i) {
        TokenId token = token_after(hash);
        const double coin = static_cast<double>(mixed(hash + kCoin) >> 11) * 0x1.0p-53;
        if (coin >= options_.acceptance)
          token = token == options_.alphabet[0] ? options_.alphabet[1] : options_.alphabet[0];
        proposals.push_back(token);
        hash = appended(hash, token);
      }
    }
  }
  if (depth > 0) spend(options_.draft_us * depth);
  return proposals;
}

std::vector<std::byte> FixedCostModel::save(int slot, int position, std::int32_t) {
  const CpuMeter meter(model_cpu_s_);
  // A prompt is kept without its last token, so that there is always one to compute: one behind even without drafts.
  const std::uint64_t hash = known_hash(slot, position, std::max(1, options_.limits.max_draft));
  std::vector<std::byte> bytes(sizeof hash);
  std::memcpy(bytes.data(), &hash, sizeof hash);
  return bytes;
}

void FixedCostModel::restore(int slot, int position, std::int32_t,
                             std::span<const std::byte> bytes) {
  const CpuMeter meter(model_cpu_s_);
  std::uint64_t hash = 0;
  NIBBLE_CHECK(bytes.size() == sizeof hash, "{} bytes", bytes.size());
  NIBBLE_CHECK(slot >= 0 && slot < options_.limits.slots, "slot {}", slot);
  std::memcpy(&hash, bytes.data(), sizeof hash);
  hash_at(slot, position) = hash;
  slots_[static_cast<std::size_t>(slot)].length = position;
  slots_[static_cast<std::size_t>(slot)].oldest = position;
}

std::int64_t FixedCostModel::saved_bytes(int) const {
  return sizeof(std::uint64_t);
}

std::vector<std::byte> FixedCostModel::save_page(std::int32_t page) {
  NIBBLE_CHECK(page >= 0 && page < options_.limits.pages, "page {}", page);
  return std::vector<std::byte>(1);
}

void FixedCostModel::restore_page(std::int32_t page, std::span<const std::byte> bytes) {
  NIBBLE_CHECK(page >= 0 && page < options_.limits.pages && bytes.size() == 1, "page {}, {} bytes",
               page, bytes.size());
}

std::vector<TokenId> FixedCostModel::continuation(const std::vector<TokenId>& alphabet,
                                                  std::span<const TokenId> prompt, int tokens) {
  std::uint64_t hash = kEmpty;
  for (const TokenId token : prompt) hash = appended(hash, token);
  std::vector<TokenId> out;
  for (int i = 0; i < tokens; ++i) {
    out.push_back(choice(alphabet, hash));
    hash = appended(hash, out.back());
  }
  return out;
}

void FixedCostModel::spend(double us) {
  const CpuMeter meter(model_cpu_s_);  // falling asleep and waking up are not free
  if (us <= 0.0) return;
  options_.spend ? options_.spend(us) : sleep_us(us);
}

}  // namespace nibble::engine::testing
