#include "text/tokenizer_file.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <unordered_map>
#include <unordered_set>

#include "nibble/status.h"
#include "text/pretokenizer.h"
#include "text/utf8.h"

namespace nibble::text {

namespace {

namespace dom = simdjson::dom;

using VocabIds =
    std::unordered_map<std::string_view, TokenId>;  // token as the file spells it -> id

constexpr std::size_t kShownBytes = 60;  // of a value quoted in a message

std::string shown(dom::element value) {
  std::string text = simdjson::minify(value);
  if (text.size() > kShownBytes) text = text.substr(0, kShownBytes) + "...";
  return text;
}

// Byte-level files write each byte as one visible character: printable Latin-1 as itself, the other
// bytes as U+0100 on, in ascending order (GPT-2's table).
class ByteAlphabet {
 public:
  ByteAlphabet() {
    char32_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool visible = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
      const char32_t c = visible ? static_cast<char32_t>(byte) : next++;
      bytes_.emplace(c, static_cast<char>(byte));
    }
  }

  // A token with any other character stands for its own text.
  std::string decode(std::string_view token) const {
    std::string out;
    for (std::size_t at = 0; at < token.size();) {
      const CodePoint c = decode_code_point(token.substr(at));
      const auto found = bytes_.find(c.value);
      if (found == bytes_.end()) return std::string(token);
      out += found->second;
      at += static_cast<std::size_t>(c.bytes);
    }
    return out;
  }

 private:
  std::unordered_map<char32_t, char> bytes_;
};

class Reader {
 public:
  explicit Reader(const std::string& name) : name_(name) {}

  TokenizerSpec read(dom::element root) {
    check_pipeline(root);
    const dom::element model = member(root, "model", "");
    check_model(model);
    read_vocab(model);
    read_added(root);
    read_byte_tokens();
    read_merges(model);
    return std::move(spec_);
  }

  [[noreturn]] void refuse(const std::string& place, const std::string& what) const {
    throw CheckpointError(fmt::format("{}: {}: {}", name_, place, what));
  }

 private:
  dom::element member(dom::element object, std::string_view key, const std::string& at) const {
    dom::element value;
    const std::string place = at.empty() ? std::string(key) : at + "." + std::string(key);
    if (!object.is_object()) refuse(at.empty() ? "top level" : at, "expected an object");
    if (object.at_key(key).get(value)) refuse(place, "missing");
    return value;
  }

  // A member that may be absent or null.
  static bool has(dom::element object, std::string_view key, dom::element& value) {
    return object.is_object() && !object.at_key(key).get(value) && !value.is_null();
  }

  std::string_view text(dom::element value, const std::string& place) const {
    std::string_view out;
    if (value.get(out)) refuse(place, "expected a string, found " + shown(value));
    return out;
  }

  std::string_view type_of(dom::element object, const std::string& place) const {
    return text(member(object, "type", place), place + ".type");
  }

  dom::array array(dom::element value, const std::string& place) const {
    dom::array out;
    if (value.get(out)) refuse(place, "expected an array, found " + shown(value));
    return out;
  }

  // `place` is called for a message only: a file has a quarter of a million places.
  template <typename Place>
  TokenId id(dom::element value, const Place& place) const {
    std::int64_t number = 0;
    if (value.get(number) || number < 0 || number > kMaxTokenId) {
      refuse(place(),
             fmt::format("expected an id from 0 to {}, found {}", kMaxTokenId, shown(value)));
    }
    return static_cast<TokenId>(number);
  }

  void must_be_false(dom::element object, std::string_view key, const std::string& place) const {
    dom::element value;
    bool flag = false;
    if (!has(object, key, value)) return;
    if (value.get(flag) || flag) {
      refuse(fmt::format("{}.{}", place, key), "expected false, found " + shown(value));
    }
  }

  void check_pipeline(dom::element root) const {
    dom::element normalizer;
    if (has(root, "normalizer", normalizer)) {
      dom::element steps;
      if (type_of(normalizer, "normalizer") != "Sequence" ||
          !has(normalizer, "normalizers", steps) ||
          array(steps, "normalizer.normalizers").size() != 0) {
        refuse("normalizer", "expected none, found " + shown(normalizer));
      }
    }
    check_pre_tokenizer(member(root, "pre_tokenizer", ""));
    const dom::element decoder = member(root, "decoder", "");
    if (decoder.is_null() || type_of(decoder, "decoder") != "ByteLevel") {
      refuse("decoder", "expected ByteLevel, found " + shown(decoder));
    }
  }

  void check_pre_tokenizer(dom::element pre) const {
    const std::string place = "pre_tokenizer";
    if (pre.is_null() || type_of(pre, place) != "Sequence") {
      refuse(place, "expected DeepSeek's sequence of three splits, found " + shown(pre));
    }
    const std::string steps_place = place + ".pretokenizers";
    const dom::array steps = array(member(pre, "pretokenizers", place), steps_place);
    if (steps.size() != kSplitPatternCount + 1) {
      refuse(steps_place,
             fmt::format("expected {} steps, found {}", kSplitPatternCount + 1, steps.size()));
    }
    std::size_t index = 0;
    for (const dom::element step : steps) {
      const std::string at = fmt::format("{}[{}]", steps_place, index);
      if (index < kSplitPatternCount) {
        check_split(step, index, at);
      } else {
        if (type_of(step, at) != "ByteLevel")
          refuse(at, "expected ByteLevel, found " + shown(step));
        must_be_false(step, "add_prefix_space", at);
        dom::element use_regex;
        if (!has(step, "use_regex", use_regex))
          refuse(at + ".use_regex", "expected false, missing");
        must_be_false(step, "use_regex", at);
      }
      ++index;
    }
  }

  void check_split(dom::element step, std::size_t index, const std::string& at) const {
    if (type_of(step, at) != "Split") refuse(at, "expected Split, found " + shown(step));
    const dom::element pattern = member(step, "pattern", at);
    const std::string_view regex =
        text(member(pattern, "Regex", at + ".pattern"), at + ".pattern.Regex");
    if (!is_split_pattern(regex, index)) {
      refuse(at + ".pattern.Regex",
             fmt::format("expected {}, found {}", kSplitPatterns[index], shown(pattern)));
    }
    if (text(member(step, "behavior", at), at + ".behavior") != "Isolated") {
      refuse(at + ".behavior", "expected Isolated, found " + shown(step));
    }
    must_be_false(step, "invert", at);
  }

  void check_model(dom::element model) const {
    if (type_of(model, "model") != "BPE") {
      refuse("model.type", "expected BPE, found " + shown(member(model, "type", "model")));
    }
    for (const char* key : {"byte_fallback", "ignore_merges"}) must_be_false(model, key, "model");
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix", "dropout"}) {
      dom::element value;
      std::string_view word;
      double number = 1.0;
      if (has(model, key, value) && !(!value.get(word) && word.empty()) &&
          !(!value.get(number) && number == 0.0)) {
        refuse(fmt::format("model.{}", key), "expected none, found " + shown(value));
      }
    }
  }

  void read_vocab(dom::element model) {
    dom::object vocab;
    const dom::element value = member(model, "vocab", "model");
    if (value.get(vocab)) refuse("model.vocab", "expected an object, found " + shown(value));
    ids_.reserve(vocab.size());
    for (const dom::key_value_pair entry : vocab) {
      const auto place = [&] { return fmt::format("model.vocab[\"{}\"]", entry.key); };
      const TokenId token = id(entry.value, place);
      if (entry.key.empty()) refuse("model.vocab", "an empty token");
      if (!ids_.emplace(entry.key, token).second) refuse(place(), "listed twice");
      set_bytes(token, alphabet_.decode(entry.key), place);
    }
  }

  template <typename Place>
  void set_bytes(TokenId token, std::string bytes, const Place& place) {
    const auto index = static_cast<std::size_t>(token);
    if (index >= spec_.token_bytes.size()) spec_.token_bytes.resize(index + 1);
    if (!spec_.token_bytes[index].empty()) refuse(place(), fmt::format("id {} is taken", token));
    spec_.token_bytes[index] = std::move(bytes);
  }

  void read_added(dom::element root) {
    dom::element value;
    if (!has(root, "added_tokens", value)) return;
    std::size_t index = 0;
    for (const dom::element entry : array(value, "added_tokens")) {
      const std::string at = fmt::format("added_tokens[{}]", index++);
      AddedToken token;
      const auto id_place = [&] { return at + ".id"; };
      token.id = id(member(entry, "id", at), id_place);
      token.content = text(member(entry, "content", at), at + ".content");
      if (token.content.empty()) refuse(at + ".content", "empty");
      for (const char* key : {"single_word", "lstrip", "rstrip"}) must_be_false(entry, key, at);
      token.special = flag(entry, "special", at);
      token.normalized = flag(entry, "normalized", at);
      if (!added_ids_.insert(token.id).second) {
        refuse(at + ".id", fmt::format("id {} is taken", token.id));
      }
      if (!added_contents_.insert(token.content).second) refuse(at + ".content", "listed twice");
      const auto in_vocab = ids_.find(token.content);
      if (in_vocab == ids_.end()) {
        set_bytes(token.id, token.content, id_place);
      } else if (in_vocab->second != token.id) {
        refuse(at + ".id",
               fmt::format("expected {} as in model.vocab, found {}", in_vocab->second, token.id));
      } else {
        spec_.token_bytes[static_cast<std::size_t>(token.id)] = token.content;
      }
      spec_.added.push_back(std::move(token));
    }
  }

  bool flag(dom::element object, std::string_view key, const std::string& at) const {
    bool value = false;
    const dom::element found = member(object, key, at);
    if (found.get(value)) {
      refuse(fmt::format("{}.{}", at, key), "expected true or false, found " + shown(found));
    }
    return value;
  }

  void read_byte_tokens() {
    std::array<bool, 256> known{};
    for (const auto& [spelled, token] : ids_) {
      const std::string& bytes = spec_.token_bytes[static_cast<std::size_t>(token)];
      if (bytes.size() != 1 || added_ids_.contains(token)) continue;
      const auto byte = static_cast<unsigned char>(bytes[0]);
      known[byte] = true;
      spec_.byte_ids[byte] = token;
    }
    for (int byte = 0; byte < 256; ++byte) {
      if (!known[static_cast<std::size_t>(byte)]) {
        refuse("model.vocab", fmt::format("no token for the single byte 0x{:02X}", byte));
      }
    }
  }

  void read_merges(dom::element model) {
    const dom::array merges = array(member(model, "merges", "model"), "model.merges");
    std::string joined;
    std::size_t index = 0;
    for (const dom::element entry : merges) {
      const auto place = [&] { return fmt::format("model.merges[{}]", index); };
      const auto [left, right] = merge_parts(entry, place);
      joined = left;
      joined += right;
      const Merge merge{vocab_id(left, place), vocab_id(right, place), vocab_id(joined, place)};
      // What encode() promises: no text becomes a control token.
      if (added_ids_.contains(merge.result)) refuse(place(), "gives the added token " + joined);
      spec_.merges.push_back(merge);
      ++index;
    }
  }

  // "left right" in older files, ["left", "right"] in newer ones.
  template <typename Place>
  std::pair<std::string_view, std::string_view> merge_parts(dom::element entry,
                                                            const Place& place) const {
    const auto odd = [&] { refuse(place(), "expected two tokens, found " + shown(entry)); };
    std::string_view line;
    if (!entry.get(line)) {
      const std::size_t space = line.find(' ');
      if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos)
        odd();
      return {line.substr(0, space), line.substr(space + 1)};
    }
    dom::array parts;
    dom::element left;
    dom::element right;
    std::string_view first;
    std::string_view second;
    if (entry.get(parts) || parts.size() != 2 || parts.at(0).get(left) || parts.at(1).get(right) ||
        left.get(first) || right.get(second)) {
      odd();
    }
    return {first, second};
  }

  template <typename Place>
  TokenId vocab_id(std::string_view token, const Place& place) const {
    const auto found = ids_.find(token);
    if (found == ids_.end()) refuse(place(), fmt::format("\"{}\" is not in model.vocab", token));
    return found->second;
  }

  const std::string& name_;
  ByteAlphabet alphabet_;
  TokenizerSpec spec_;
  VocabIds ids_;  // views into the parsed document
  std::unordered_set<TokenId> added_ids_;
  std::unordered_set<std::string> added_contents_;
};

}  // namespace

TokenizerSpec parse_tokenizer_file(std::string_view json, const std::string& name) {
  const Reader reader_for_errors(name);
  if (json.size() > kMaxTokenizerBytes) {
    reader_for_errors.refuse(
        "size", fmt::format("{} bytes, at most {} are read", json.size(), kMaxTokenizerBytes));
  }
  const simdjson::padded_string padded(json);
  dom::parser parser;
  dom::element root;
  if (const auto error = parser.parse(padded).get(root)) {
    reader_for_errors.refuse("not valid JSON", simdjson::error_message(error));
  }
  return Reader(name).read(root);
}

}  // namespace nibble::text
