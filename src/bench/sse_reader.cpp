#include "bench/sse_reader.h"

namespace nibble::bench {

void SseReader::push(std::string_view bytes) {
  while (!bytes.empty()) {
    if (after_cr_ && bytes.front() == '\n') bytes.remove_prefix(1);
    after_cr_ = false;
    const std::size_t end = bytes.find_first_of("\r\n");
    if (end == std::string_view::npos) {
      line_ += bytes;
      return;
    }
    after_cr_ = bytes[end] == '\r';
    if (line_.empty()) {
      end_line(bytes.substr(0, end));
    } else {
      line_ += bytes.substr(0, end);
      end_line(line_);
      line_.clear();
    }
    bytes.remove_prefix(end + 1);
  }
}

void SseReader::end_line(std::string_view line) {
  constexpr std::string_view kData = "data:";
  if (line.empty()) {
    if (has_data_) on_event_(data_);
    data_.clear();
    has_data_ = false;
    return;
  }
  if (!line.starts_with(kData)) return;
  line.remove_prefix(kData.size());
  if (line.starts_with(' ')) line.remove_prefix(1);
  if (has_data_) data_ += '\n';
  data_ += line;
  has_data_ = true;
}

}  // namespace nibble::bench
