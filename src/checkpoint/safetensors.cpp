#include "checkpoint/safetensors.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string_view>
#include <unordered_set>

#include "checkpoint/json_guard.h"
#include "checkpoint/quote.h"
#include "nibble/status.h"

namespace nibble::checkpoint {
namespace {

namespace json = simdjson::ondemand;
using tensor::DType;

constexpr std::int64_t kLengthBytes = 8;
// Far beyond any file, far below overflow: sums of two such numbers fit an int64.
constexpr std::uint64_t kLargestOffset = std::uint64_t{1} << 62;

constexpr std::array kKnownDTypes = {DType::kF32,    DType::kBF16, DType::kF16, DType::kF8E4M3,
                                     DType::kF8E8M0, DType::kI8,   DType::kU8,  DType::kI16,
                                     DType::kI32,    DType::kI64};

std::optional<DType> parse_dtype(std::string_view name) {
  for (const DType dtype : kKnownDTypes) {
    if (tensor::dtype_name(dtype) == name) return dtype;
  }
  return std::nullopt;
}

std::string known_dtypes() {
  std::string names;
  for (const DType dtype : kKnownDTypes) {
    if (!names.empty()) names += ", ";
    names += tensor::dtype_name(dtype);
  }
  return names;
}

// Turns the JSON text into tensors. simdjson's On-Demand walk reads only what is asked for and
// skips the rest without recursion, so nesting costs no stack.
class HeaderParser {
 public:
  HeaderParser(const std::string& path, std::int64_t data_start)
      : path_(path), data_start_(data_start) {}

  std::vector<StoredTensor> parse(const simdjson::padded_string& text) {
    json::parser parser;
    json::document document;
    json::object root;
    if (const auto problem = json_problem(text)) fail(*problem);
    check(parser.iterate(text).get(document));
    check(document.get_object().get(root));
    bool metadata_seen = false;
    for (auto entry : root) {
      json::field field;
      check(std::move(entry).get(field));
      std::string_view key;
      check(field.unescaped_key().get(key));
      if (key == "__metadata__") {
        if (metadata_seen) fail("__metadata__ occurs twice");
        metadata_seen = true;
        parse_metadata(field.value());
        continue;
      }
      if (tensors_.size() == kMaxTensors) {
        fail(fmt::format("more than {} tensors", kMaxTensors));
      }
      tensor_.assign(key);
      tensors_.push_back(parse_tensor(field.value()));
      tensor_.clear();
    }
    if (has_more(document)) fail("there is text after the header's closing brace");
    return std::move(tensors_);
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    if (tensor_.empty()) throw CheckpointError(fmt::format("{}: header: {}", path_, problem));
    throw CheckpointError(fmt::format("{}: tensor {}: {}", path_, quote(tensor_), problem));
  }

  void check(simdjson::error_code error) const {
    if (error) fail(fmt::format("broken JSON ({})", simdjson::error_message(error)));
  }

  void parse_metadata(json::value value) const {
    json::object entries;
    if (value.get_object().get(entries)) fail("__metadata__ is not an object");
    for (auto entry : entries) {
      json::field field;
      check(std::move(entry).get(field));
      std::string_view text;
      if (field.value().get_string().get(text)) fail("__metadata__ holds a value that is not text");
    }
  }

  StoredTensor parse_tensor(json::value value) {
    StoredTensor tensor;
    tensor.name = tensor_;
    std::optional<DType> dtype;
    std::optional<std::vector<std::uint64_t>> dims;
    std::optional<std::vector<std::uint64_t>> offsets;
    json::object entries;
    if (value.get_object().get(entries)) fail("expected an object with dtype, shape, data_offsets");
    for (auto entry : entries) {
      json::field field;
      check(std::move(entry).get(field));
      std::string_view key;
      check(field.unescaped_key().get(key));
      if (key == "dtype") {
        if (dtype) fail("dtype occurs twice");
        dtype = read_dtype(field.value());
      } else if (key == "shape") {
        if (dims) fail("shape occurs twice");
        dims = read_numbers(field.value(), "shape", tensor::Shape::kMaxRank);
      } else if (key == "data_offsets") {
        if (offsets) fail("data_offsets occurs twice");
        offsets = read_numbers(field.value(), "data_offsets", 2);
      }
    }
    if (!dtype) fail("dtype is missing");
    if (!dims) fail("shape is missing");
    if (!offsets || offsets->size() != 2) fail("data_offsets: expected [begin, end]");
    tensor.dtype = *dtype;
    place(tensor, *dims, (*offsets)[0], (*offsets)[1]);
    return tensor;
  }

  DType read_dtype(json::value value) const {
    std::string_view name;
    if (value.get_string().get(name)) fail("dtype is not text");
    const auto dtype = parse_dtype(name);
    if (!dtype) fail(fmt::format("dtype {}, expected one of {}", quote(name), known_dtypes()));
    return *dtype;
  }

  std::vector<std::uint64_t> read_numbers(json::value value, const char* key,
                                          std::size_t most) const {
    json::array array;
    if (value.get_array().get(array)) fail(fmt::format("{} is not an array", key));
    std::vector<std::uint64_t> numbers;
    for (auto element : array) {
      std::uint64_t number = 0;
      if (element.get_uint64().get(number)) {
        fail(fmt::format("{} holds something other than a non-negative integer", key));
      }
      if (numbers.size() == most) fail(fmt::format("{} has more than {} entries", key, most));
      if (number > kLargestOffset) fail(fmt::format("{} holds {}, beyond any file", key, number));
      numbers.push_back(number);
    }
    return numbers;
  }

  // Checks the byte range against shape and dtype.
  void place(StoredTensor& tensor, const std::vector<std::uint64_t>& dims, std::uint64_t begin,
             std::uint64_t end) const {
    std::vector<std::int64_t> signed_dims(dims.begin(), dims.end());
    tensor.shape = tensor::Shape(std::span<const std::int64_t>(signed_dims));
    std::int64_t bytes = tensor::dtype_bytes(tensor.dtype);
    for (const std::int64_t dim : signed_dims) {
      if (__builtin_mul_overflow(bytes, dim, &bytes)) {
        fail(fmt::format("shape {} overflows a 64-bit size", tensor.shape.to_string()));
      }
    }
    if (begin > end || static_cast<std::int64_t>(end - begin) != bytes) {
      fail(fmt::format("expected {} bytes for {} {}, found data_offsets [{}, {}]", bytes,
                       tensor::dtype_name(tensor.dtype), tensor.shape.to_string(), begin, end));
    }
    tensor.offset = data_start_ + static_cast<std::int64_t>(begin);
    tensor.bytes = bytes;
  }

  const std::string& path_;
  std::int64_t data_start_;
  std::string tensor_;  // the one being read, for messages
  std::vector<StoredTensor> tensors_;
};

void refuse_duplicates(const std::string& path, const std::vector<StoredTensor>& tensors) {
  std::unordered_set<std::string_view> names;
  names.reserve(tensors.size());
  for (const StoredTensor& tensor : tensors) {
    if (!names.insert(tensor.name).second) {
      throw CheckpointError(
          fmt::format("{}: tensor {} occurs twice in the header", path, quote(tensor.name)));
    }
  }
}

// `tensors` are sorted by offset. Together they must cover the data section without holes; bytes
// after the last are only noted.
void check_layout(const File& file, std::int64_t data_start, SafetensorsHeader& header) {
  std::int64_t promised = data_start;
  for (const StoredTensor& tensor : header.tensors) {
    promised = std::max(promised, tensor.offset + tensor.bytes);
  }
  std::int64_t covered = data_start;
  const StoredTensor* previous = nullptr;
  for (const StoredTensor& tensor : header.tensors) {
    const std::int64_t end = tensor.offset + tensor.bytes;
    if (end > file.size()) {
      throw CheckpointError(fmt::format(
          "{}: truncated: expected {} bytes, found {}, {} missing; the first tensor cut off is {}",
          file.path(), promised, file.size(), promised - file.size(), quote(tensor.name)));
    }
    if (tensor.bytes == 0) continue;
    if (tensor.offset < covered) {
      throw CheckpointError(fmt::format("{}: tensors {} and {} overlap by {} bytes", file.path(),
                                        quote(previous->name), quote(tensor.name),
                                        std::min(covered, end) - tensor.offset));
    }
    if (tensor.offset > covered) {
      throw CheckpointError(fmt::format("{}: {} bytes before tensor {} belong to no tensor",
                                        file.path(), tensor.offset - covered, quote(tensor.name)));
    }
    covered = end;
    previous = &tensor;
  }
  if (covered < file.size()) {
    header.notes.push_back(fmt::format("{}: {} bytes after the last tensor are ignored",
                                       file.path(), file.size() - covered));
  }
}

std::int64_t read_header_length(const File& file) {
  if (file.size() < kLengthBytes) {
    throw CheckpointError(fmt::format(
        "{}: {} bytes, too short for a safetensors file (8 bytes of header length first)",
        file.path(), file.size()));
  }
  std::array<unsigned char, kLengthBytes> bytes;
  file.read_at(0, std::as_writable_bytes(std::span(bytes)));
  if (std::memcmp(bytes.data(), "version ", bytes.size()) == 0) {
    throw CheckpointError(fmt::format(
        "{}: a Git LFS pointer, not the tensors: run `git lfs pull` in that folder", file.path()));
  }
  std::uint64_t length = 0;
  for (int i = kLengthBytes - 1; i >= 0; --i)
    length = length << 8 | bytes[static_cast<std::size_t>(i)];
  if (length > static_cast<std::uint64_t>(kMaxHeaderBytes)) {
    throw CheckpointError(fmt::format("{}: header length {}, expected at most {}", file.path(),
                                      length, kMaxHeaderBytes));
  }
  const auto header_bytes = static_cast<std::int64_t>(length);
  if (header_bytes > file.size() - kLengthBytes) {
    throw CheckpointError(fmt::format(
        "{}: truncated inside its header: expected {} bytes, found {}, at least {} missing",
        file.path(), kLengthBytes + header_bytes, file.size(),
        kLengthBytes + header_bytes - file.size()));
  }
  return header_bytes;
}

}  // namespace

SafetensorsHeader read_safetensors_header(const File& file) {
  const std::int64_t header_bytes = read_header_length(file);
  const std::int64_t data_start = kLengthBytes + header_bytes;
  simdjson::padded_string text(static_cast<std::size_t>(header_bytes));
  file.read_at(kLengthBytes, std::as_writable_bytes(std::span(text.data(), text.size())));

  SafetensorsHeader header;
  header.tensors = HeaderParser(file.path(), data_start).parse(text);
  refuse_duplicates(file.path(), header.tensors);
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const StoredTensor& a, const StoredTensor& b) {
                     return std::pair(a.offset, a.offset + a.bytes) <
                            std::pair(b.offset, b.offset + b.bytes);
                   });
  check_layout(file, data_start, header);
  return header;
}

}  // namespace nibble::checkpoint
