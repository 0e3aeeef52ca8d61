#include "checkpoint/shard_index.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>

#include "checkpoint/folder.h"
#include "checkpoint/json_guard.h"
#include "checkpoint/quote.h"
#include "checkpoint/safetensors.h"
#include "nibble/status.h"

namespace nibble::checkpoint {
namespace {

namespace json = simdjson::ondemand;

class IndexParser {
 public:
  explicit IndexParser(const std::string& path) : path_(path) {}

  ShardIndex parse(const simdjson::padded_string& text) {
    json::parser parser;
    json::document document;
    json::object root;
    if (const auto problem = json_problem(text)) fail(*problem);
    check(parser.iterate(text).get(document));
    check(document.get_object().get(root));
    bool map_seen = false;
    for (auto entry : root) {
      json::field field;
      check(std::move(entry).get(field));
      std::string_view key;
      check(field.unescaped_key().get(key));
      if (key == "metadata") {
        read_metadata(field.value());
      } else if (key == "weight_map") {
        if (map_seen) fail("weight_map occurs twice");
        map_seen = true;
        read_weight_map(field.value());
      }
    }
    if (has_more(document)) fail("there is text after the closing brace");
    if (!map_seen) fail("weight_map is missing");
    if (index_.shard_of.empty()) fail("weight_map is empty");
    number_shards_by_name();
    return std::move(index_);
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw CheckpointError(fmt::format("{}: {}", path_, problem));
  }

  void check(simdjson::error_code error) const {
    if (error) fail(fmt::format("broken JSON ({})", simdjson::error_message(error)));
  }

  void read_metadata(json::value value) {
    json::object entries;
    if (value.get_object().get(entries)) fail("metadata is not an object");
    for (auto entry : entries) {
      json::field field;
      check(std::move(entry).get(field));
      std::string_view key;
      check(field.unescaped_key().get(key));
      std::uint64_t number = 0;
      // A total that is no integer says nothing; it is a hint and never decides.
      if (key == "total_size" && !field.value().get_uint64().get(number)) {
        index_.total_size = number;
      }
    }
  }

  void read_weight_map(json::value value) {
    json::object entries;
    if (value.get_object().get(entries)) fail("weight_map is not an object");
    for (auto entry : entries) {
      json::field field;
      check(std::move(entry).get(field));
      std::string_view key;
      check(field.unescaped_key().get(key));
      std::string tensor(key);
      std::string_view shard;
      if (field.value().get_string().get(shard)) {
        fail(fmt::format("weight_map: tensor {}: the shard is not text", quote(tensor)));
      }
      if (index_.shard_of.size() == kMaxTensors)
        fail(fmt::format("more than {} tensors", kMaxTensors));
      const int number = shard_number(tensor, shard);
      if (!index_.shard_of.emplace(tensor, number).second) {
        fail(fmt::format("weight_map: tensor {} occurs twice", quote(tensor)));
      }
    }
  }

  int shard_number(const std::string& tensor, std::string_view shard) {
    const auto known = number_of_.find(std::string(shard));
    if (known != number_of_.end()) return known->second;
    const auto refuse = [&](std::string_view problem) {
      fail(
          fmt::format("weight_map: tensor {}: shard {} {}; expected a *.safetensors file directly "
                      "in the folder",
                      quote(tensor), quote(shard), problem));
    };
    if (const auto problem = plain_name_problem(shard)) refuse(*problem);
    if (!shard.ends_with(".safetensors")) refuse("does not end in .safetensors");
    if (index_.shards.size() == kMaxShards) fail(fmt::format("more than {} shards", kMaxShards));
    const int number = static_cast<int>(index_.shards.size());
    number_of_.emplace(shard, number);
    index_.shards.emplace_back(shard);
    return number;
  }

  void number_shards_by_name() {
    std::vector<std::string> sorted = index_.shards;
    std::sort(sorted.begin(), sorted.end());
    std::vector<int> renumbered(sorted.size());
    for (std::size_t i = 0; i < sorted.size(); ++i) {
      renumbered[static_cast<std::size_t>(number_of_.at(sorted[i]))] = static_cast<int>(i);
    }
    for (auto& [tensor, number] : index_.shard_of) {
      number = renumbered[static_cast<std::size_t>(number)];
    }
    index_.shards = std::move(sorted);
  }

  const std::string& path_;
  std::unordered_map<std::string, int> number_of_;  // shard name -> order of first mention
  ShardIndex index_;
};

}  // namespace

ShardIndex parse_shard_index(const std::string& path, std::string_view text) {
  return IndexParser(path).parse(simdjson::padded_string(text));
}

}  // namespace nibble::checkpoint
