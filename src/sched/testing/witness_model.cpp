#include "sched/testing/witness_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <stdexcept>

#include "ops/batch.h"

namespace nibble::sched::testing {
namespace {

using ops::kPageTokens;

constexpr int kGroup = 4;    // tokens that a page takes together
constexpr int kWindow = 12;  // tokens that a slot must still have
constexpr int kSlack = 8;    // and so many more, for going back
constexpr int kRing = kWindow + kSlack;
constexpr int kVocab = 64;
constexpr TokenId kEos = 1;
constexpr std::uint64_t kEmpty = 0xCBF29CE484222325u;

// FNV-1a over the token, then mixed, so that the low bits depend on all.
std::uint64_t extend(std::uint64_t hash, TokenId token) {
  hash = (hash ^ static_cast<std::uint32_t>(token)) * 0x100000001B3u;
  return hash ^ (hash >> 29);
}

}  // namespace

WitnessModel::WitnessModel(const WitnessSpec& spec)
    : spec_(spec),
      limits_{spec.slots, spec.pages, spec.max_step_rows, spec.max_draft},
      pages_(static_cast<std::size_t>(spec.pages) * kPageTokens, -1),
      rings_(static_cast<std::size_t>(spec.slots) * kRing) {
  info_.name = "witness";
  info_.vocab_size = kVocab;
  info_.eos_token = kEos;
  info_.max_model_len = spec.max_model_len;
  info_.max_num_seqs = spec.slots;
  info_.drafting = spec.max_draft > 0;
}

TokenId WitnessModel::token_after(std::uint64_t hash, const SamplingParams& params) const {
  if (params.temperature > 0.0f) hash = extend(hash, static_cast<TokenId>(params.seed));
  hash *= 0x9E3779B97F4A7C15u;
  if (spec_.eos_every > 0 && (hash >> 20) % static_cast<unsigned>(spec_.eos_every) == 0)
    return kEos;
  return static_cast<TokenId>(2 + (hash >> 40) % (kVocab - 2));
}

std::vector<TokenId> WitnessModel::answer(const Request& request) const {
  std::uint64_t hash = kEmpty;
  for (const TokenId token : request.prompt) hash = extend(hash, token);
  std::vector<TokenId> answer;
  while (static_cast<int>(answer.size()) < request.sampling.max_tokens) {
    const TokenId token = token_after(hash, request.sampling);
    if (token == kEos && !request.sampling.ignore_eos) break;
    answer.push_back(token);
    hash = extend(hash, token);
  }
  return answer;
}

void WitnessModel::may_fail(const char* what) {
  if (fail_after < 0) return;
  if (fail_for_good) {
    if (fail_after > 0) --fail_after;
    if (fail_after == 0) throw DeviceLost(fmt::format("{} lost the device", what));
    return;
  }
  if (fail_after-- == 0)
    throw std::runtime_error(fmt::format("{} failed, as the test asked", what));
}

WitnessModel::RingRow& WitnessModel::ring(int slot, int position) {
  return rings_[static_cast<std::size_t>(slot) * kRing +
                static_cast<std::size_t>(position % kRing)];
}

TokenId& WitnessModel::kept(std::int32_t page, int position) {
  return pages_[static_cast<std::size_t>(page) * kPageTokens +
                static_cast<std::size_t>(position % kPageTokens)];
}

// The tokens 0 .. position - 1 of the segment's sequence, as its pages and its ring have them.
std::uint64_t WitnessModel::hash_before(const ops::Batch& batch, const ops::Segment& segment,
                                        int position) {
  const int closed = position / kGroup * kGroup;
  std::uint64_t hash = kEmpty;
  for (int p = 0; p < position; ++p) {
    const RingRow& row = ring(segment.slot, p);
    const bool in_ring = row.position == p;
    TokenId token = row.token;
    if (p < closed) {
      const auto page = static_cast<std::size_t>(segment.first_page + p / kPageTokens);
      token = kept(batch.pages[page], p);
      if (in_ring && row.token != token)
        problem(fmt::format("slot {} position {}: {} in the ring, {} in the page", segment.slot, p,
                            row.token, token));
    }
    if (p >= position - kWindow && !in_ring)
      problem(fmt::format("slot {} position {}: the ring has position {}", segment.slot, p,
                          row.position));
    hash = extend(hash, token);
  }
  return hash;
}

void WitnessModel::write(const ops::Batch& batch, const ops::Segment& segment, int position,
                         TokenId token) {
  ring(segment.slot, position) = {position, token};
  if ((position + 1) % kGroup != 0) return;
  const auto page = static_cast<std::size_t>(segment.first_page + position / kPageTokens);
  for (int p = position - kGroup + 1; p <= position; ++p)
    kept(batch.pages[page], p) = ring(segment.slot, p).token;
}

// A page that a segment writes may be in nobody else's table.
void WitnessModel::check_pages(const ops::Batch& batch) {
  std::map<std::int32_t, int> readers;
  for (std::size_t i = 0; i < batch.segments.size(); ++i) {
    const auto begin = static_cast<std::size_t>(batch.segments[i].first_page);
    const std::size_t end = i + 1 < batch.segments.size()
                                ? static_cast<std::size_t>(batch.segments[i + 1].first_page)
                                : batch.pages.size();
    for (std::size_t j = begin; j < end; ++j) ++readers[batch.pages[j]];
  }
  std::vector<bool> slots(static_cast<std::size_t>(spec_.slots));
  for (const ops::Segment& s : batch.segments) {
    if (slots[static_cast<std::size_t>(s.slot)]) problem(fmt::format("slot {} twice", s.slot));
    slots[static_cast<std::size_t>(s.slot)] = true;
    for (int p = s.position / kPageTokens; p <= (s.position + s.rows - 1) / kPageTokens; ++p) {
      const std::int32_t page = batch.pages[static_cast<std::size_t>(s.first_page + p)];
      if (readers[page] > 1) problem(fmt::format("page {} is written and shared", page));
    }
  }
}

void WitnessModel::forward(const ops::Batch& batch) {
  may_fail("forward");
  now_ns += spec_.step_ns + spec_.row_ns * batch.rows();
  if (batch.rows() > spec_.max_step_rows) problem(fmt::format("{} rows", batch.rows()));
  check_pages(batch);
  rows_.assign(static_cast<std::size_t>(batch.rows()), 0);
  for (const ops::Segment& segment : batch.segments) {
    std::uint64_t hash = hash_before(batch, segment, segment.position);
    for (int i = 0; i < segment.rows; ++i) {
      const auto row = static_cast<std::size_t>(segment.first_row + i);
      hash = extend(hash, batch.ids[row]);
      write(batch, segment, segment.position + i, batch.ids[row]);
      rows_[row] = hash;
    }
  }
}

std::vector<Result<GeneratedToken>> WitnessModel::draw(std::span<const engine::DrawRow> rows) {
  may_fail("draw");
  std::vector<Result<GeneratedToken>> drawn;
  drawn.reserve(rows.size());
  for (const engine::DrawRow& row : rows) {
    GeneratedToken token;
    token.token = token_after(rows_[static_cast<std::size_t>(row.row)], *row.draw.params);
    drawn.emplace_back(std::move(token));
  }
  return drawn;
}

// Instead of a probability: something that depends on the row and the token.
std::vector<GeneratedToken> WitnessModel::score(std::int32_t begin, std::span<const TokenId> tokens,
                                                int) {
  may_fail("score");
  std::vector<GeneratedToken> scored;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::uint64_t hash =
        extend(rows_[static_cast<std::size_t>(begin) + i], tokens[i]) * 0x9E3779B97F4A7C15u;
    scored.push_back({tokens[i], -static_cast<float>(hash >> 48), {}});
  }
  return scored;
}

std::vector<TokenId> WitnessModel::draft(const ops::Batch& batch,
                                         std::span<const engine::DraftRow> rows, int depth) {
  may_fail("draft");
  ++drafter_calls;
  now_ns += spec_.draft_ns * std::max(depth, 1);
  SamplingParams greedy;
  greedy.temperature = 0.0f;
  std::vector<TokenId> proposed;
  for (const engine::DraftRow& row : rows) {
    std::uint64_t hash = extend(rows_[static_cast<std::size_t>(row.row)],
                                batch.ids[static_cast<std::size_t>(row.row)]);
    for (int i = 0; i < depth; ++i) {
      TokenId token = token_after(hash, greedy);
      const auto luck = static_cast<double>(hash * 0xD6E8FEB86659FD93u >> 11) * 0x1p-53;
      if (luck >= spec_.acceptance) token = token == 2 ? 3 : 2;
      proposed.push_back(token);
      hash = extend(hash, token);
    }
  }
  return proposed;
}

std::int64_t WitnessModel::saved_bytes(int position) const {
  const int open = position / kGroup * kGroup - position / kPageTokens * kPageTokens;
  return static_cast<std::int64_t>(sizeof(TokenId)) *
         (1 + std::min(position, kWindow) + std::max(open, 0));
}

std::int64_t WitnessModel::page_bytes() const {
  return kPageTokens * static_cast<std::int64_t>(sizeof(TokenId));
}

std::vector<std::byte> WitnessModel::save_page(std::int32_t page) {
  may_fail("save_page");
  std::vector<std::byte> bytes(static_cast<std::size_t>(page_bytes()));
  std::memcpy(bytes.data(), &kept(page, 0), bytes.size());
  return bytes;
}

void WitnessModel::restore_page(std::int32_t page, std::span<const std::byte> bytes) {
  may_fail("restore_page");
  if (static_cast<std::int64_t>(bytes.size()) != page_bytes())
    problem(fmt::format("{} bytes for a page", bytes.size()));
  std::memcpy(&kept(page, 0), bytes.data(), bytes.size());
}

std::vector<std::byte> WitnessModel::save(int slot, int position, std::int32_t page) {
  may_fail("save");
  std::vector<TokenId> tokens = {position};
  for (int p = std::max(0, position - kWindow); p < position; ++p) {
    const RingRow& row = ring(slot, p);
    if (row.position != p) problem(fmt::format("saving position {} of slot {}", p, slot));
    tokens.push_back(row.token);
  }
  for (int p = position / kPageTokens * kPageTokens; p < position / kGroup * kGroup; ++p)
    tokens.push_back(kept(page, p));
  std::vector<std::byte> bytes(tokens.size() * sizeof(TokenId));
  std::memcpy(bytes.data(), tokens.data(), bytes.size());
  return bytes;
}

void WitnessModel::restore(int slot, int position, std::int32_t page,
                           std::span<const std::byte> bytes) {
  may_fail("restore");
  std::vector<TokenId> tokens(bytes.size() / sizeof(TokenId));
  std::memcpy(tokens.data(), bytes.data(), bytes.size());
  if (static_cast<std::int64_t>(bytes.size()) != saved_bytes(position) || tokens[0] != position)
    problem(
        fmt::format("{} bytes of position {} restored at {}", bytes.size(), tokens[0], position));
  auto next = tokens.begin() + 1;
  for (int i = 0; i < kRing; ++i) ring(slot, i) = {};
  for (int p = std::max(0, position - kWindow); p < position; ++p) ring(slot, p) = {p, *next++};
  for (int p = position / kPageTokens * kPageTokens; p < position / kGroup * kGroup; ++p)
    kept(page, p) = *next++;
}

}  // namespace nibble::sched::testing
