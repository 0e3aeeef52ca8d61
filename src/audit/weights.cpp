#include "audit/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <string_view>
#include <unordered_map>

#include "audit/name_check.h"
#include "checkpoint/quote.h"
#include "checkpoint/safetensors.h"
#include "nibble/status.h"

namespace nibble::audit {
namespace {

using checkpoint::quote;

constexpr std::size_t kNamesInAReport = 8;  // findings of one kind for one file

// The readers' messages begin with the file's path, which the report says anyway.
std::string without_path(const std::string& message, const std::string& path) {
  return message.starts_with(path + ": ") ? message.substr(path.size() + 2) : message;
}

// NAME-00003-of-00046.safetensors
struct ShardNumber {
  std::string stem;
  int number = 0;
  int count = 0;
};

std::optional<ShardNumber> shard_number(std::string_view name) {
  constexpr std::string_view kEnding = ".safetensors";
  constexpr std::size_t kDigits = 5;
  constexpr std::string_view kOf = "-of-";
  if (!name.ends_with(kEnding)) return std::nullopt;
  name.remove_suffix(kEnding.size());
  const std::size_t tail = 1 + kDigits + kOf.size() + kDigits;
  if (name.size() < tail) return std::nullopt;
  const std::string_view numbers = name.substr(name.size() - tail);
  if (numbers[0] != '-' || numbers.substr(1 + kDigits, kOf.size()) != kOf) return std::nullopt;
  ShardNumber shard;
  shard.stem = name.substr(0, name.size() - tail);
  const auto read = [](std::string_view digits, int& value) {
    return std::from_chars(digits.data(), digits.data() + digits.size(), value).ptr ==
           digits.data() + digits.size();
  };
  if (!read(numbers.substr(1, kDigits), shard.number) ||
      !read(numbers.substr(tail - kDigits), shard.count))
    return std::nullopt;
  return shard;
}

}  // namespace

std::optional<ShardTensors> check_safetensors(const checkpoint::File& file,
                                              std::vector<Finding>& findings) {
  try {
    const checkpoint::SafetensorsHeader header = checkpoint::read_safetensors_header(file);
    ShardTensors tensors;
    for (const checkpoint::StoredTensor& tensor : header.tensors) {
      tensors.names.push_back(tensor.name);
      tensors.bytes += tensor.bytes;
    }
    for (const std::string& note : header.notes)
      add(findings, Code::kTrailingBytes, without_path(note, file.path()));
    return tensors;
  } catch (const CheckpointError& error) {
    const std::string message = without_path(error.what(), file.path());
    Code code = Code::kSafetensorsBroken;
    if (message.starts_with("truncated") ||
        message.find("too short for a safetensors") != std::string::npos)
      code = Code::kTruncated;
    else if (message.starts_with("tensor ") && message.find("': dtype '") != std::string::npos)
      code = Code::kUnknownDtype;
    add(findings, code, message);
    return std::nullopt;
  }
}

std::optional<checkpoint::ShardIndex> check_index(const std::string& path, std::string_view text,
                                                  std::vector<Finding>& findings) {
  try {
    return checkpoint::parse_shard_index(path, text);
  } catch (const CheckpointError& error) {
    const std::string message = without_path(error.what(), path);
    const bool name = message.find("directly in the folder") != std::string::npos &&
                      message.find("does not end in .safetensors") == std::string::npos;
    add(findings, name ? Code::kPathTraversal : Code::kIndexBroken, message);
    return std::nullopt;
  }
}

void WeightsCheck::add_shard(FileReport& report, std::optional<ShardTensors> tensors) {
  shards_.emplace(report.name, Shard{&report, std::move(tensors)});
}

void WeightsCheck::set_index(FileReport& report, std::optional<checkpoint::ShardIndex> index) {
  index_report_ = &report;
  index_ = std::move(index);
}

void WeightsCheck::finish(std::vector<Finding>& whole) {
  if (index_)
    check_against_index();
  else if (index_report_ == nullptr)
    check_without_index(whole);
  if (shards_.empty()) {
    add(whole, Code::kNoWeights, "expected *.safetensors files, found none");
    return;
  }
  const bool all_empty = std::all_of(shards_.begin(), shards_.end(), [](const auto& shard) {
    return shard.second.tensors && shard.second.tensors->names.empty();
  });
  if (all_empty) add(whole, Code::kNoWeights, "the *.safetensors files hold no tensors");
  find_duplicates();
}

void WeightsCheck::check_against_index() {
  std::vector<Finding>& findings = index_report_->findings;
  std::size_t missing = 0;
  for (const std::string& name : index_->shards) {
    if (shards_.contains(name) || missing++ >= kNamesInAReport) continue;
    add(findings, Code::kMissingShard, fmt::format("shard {} is not in the folder", quote(name)),
        printable(name));
  }
  if (missing > kNamesInAReport)
    add(findings, Code::kMissingShard,
        fmt::format("{} of {} shards are missing in all", missing, index_->shards.size()));

  bool complete = missing == 0;
  std::int64_t bytes = 0;
  std::set<std::string_view> held;  // tensors of the index that are where it says
  for (auto& [name, shard] : shards_) {
    const auto listed = std::lower_bound(index_->shards.begin(), index_->shards.end(), name);
    if (listed == index_->shards.end() || *listed != name) {
      add(shard.report->findings, Code::kExtraShard, "not in the index, never read");
      continue;
    }
    if (!shard.tensors) {
      complete = false;
      continue;
    }
    bytes += shard.tensors->bytes;
    const int number = static_cast<int>(listed - index_->shards.begin());
    std::size_t wrong = 0;
    for (const std::string& tensor : shard.tensors->names) {
      const auto found = index_->shard_of.find(tensor);
      if (found != index_->shard_of.end() && found->second == number) {
        held.insert(found->first);
        continue;
      }
      if (wrong++ > 0) continue;
      add(shard.report->findings, Code::kIndexMismatch,
          found == index_->shard_of.end()
              ? fmt::format("tensor {} is not listed in the index", quote(tensor))
              : fmt::format("the index places tensor {} in {}", quote(tensor),
                            quote(index_->shards[static_cast<std::size_t>(found->second)])),
          quote(tensor));
    }
    if (wrong > 1)
      shard.report->findings.back().message += fmt::format(" ({} such tensors)", wrong);
  }
  // Listed tensors that their shard does not hold, where the shard could be read.
  const std::string* first = nullptr;
  std::size_t absent = 0;
  for (const auto& [tensor, number] : index_->shard_of) {
    const auto shard = shards_.find(index_->shards[static_cast<std::size_t>(number)]);
    if (shard == shards_.end() || !shard->second.tensors || held.contains(tensor)) continue;
    ++absent;
    if (first == nullptr || tensor < *first) first = &tensor;
  }
  if (absent > 0)
    add(findings, Code::kIndexMismatch,
        fmt::format("{} listed tensors are not in their shard, the first is {} in {}", absent,
                    quote(*first),
                    quote(index_->shards[static_cast<std::size_t>(index_->shard_of.at(*first))])),
        quote(*first));
  if (complete && index_->total_size && *index_->total_size != static_cast<std::uint64_t>(bytes))
    add(findings, Code::kTotalSize,
        fmt::format("total_size says {} bytes, the shards hold {}", *index_->total_size, bytes));
}

void WeightsCheck::check_without_index(std::vector<Finding>& whole) {
  constexpr const char* kSingle = "model.safetensors";
  if (shards_.contains(kSingle)) {
    for (auto& [name, shard] : shards_) {
      if (name != kSingle)
        add(shard.report->findings, Code::kExtraShard,
            fmt::format("never read beside {}", kSingle));
    }
    return;
  }
  // Without an index only the names say how many shards there should be.
  std::map<std::pair<std::string, int>, std::set<int>> families;
  for (const auto& [name, shard] : shards_) {
    const auto number = shard_number(name);
    if (number && number->number >= 1 && number->number <= number->count)
      families[{number->stem, number->count}].insert(number->number);
  }
  for (const auto& [family, numbers] : families) {
    const auto missing = static_cast<std::size_t>(family.second) - numbers.size();
    if (missing == 0) continue;
    int first = 1;
    while (numbers.contains(first)) ++first;
    const std::string name =
        fmt::format("{}-{:05}-of-{:05}.safetensors", family.first, first, family.second);
    add(whole, Code::kMissingShard,
        fmt::format("{} of {} shards are missing by their names, the first is {}", missing,
                    family.second, quote(name)),
        printable(name));
  }
}

void WeightsCheck::find_duplicates() {
  std::unordered_map<std::string_view, const std::string*> first;
  for (auto& [name, shard] : shards_) {
    const bool read =
        !index_ || std::binary_search(index_->shards.begin(), index_->shards.end(), name);
    if (!shard.tensors || !read) continue;
    if (!index_ && shards_.contains("model.safetensors") && name != "model.safetensors") continue;
    std::size_t twice = 0;
    for (const std::string& tensor : shard.tensors->names) {
      const auto [other, is_new] = first.emplace(tensor, &name);
      if (is_new || twice++ > 0) continue;
      add(shard.report->findings, Code::kDuplicateTensor,
          fmt::format("tensor {} is also in {}", quote(tensor), quote(*other->second)),
          quote(tensor));
    }
  }
}

}  // namespace nibble::audit
