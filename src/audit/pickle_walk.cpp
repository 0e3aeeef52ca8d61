#include "audit/pickle_walk.h"

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "checkpoint/quote.h"

namespace nibble::audit {
namespace {

constexpr int kEnoughInstructions = 4;  // beyond PROTO
constexpr std::size_t kMaxDepth = 1 << 20;

class Walker {
 public:
  explicit Walker(std::string_view text) : text_(text) {}

  PickleWalk run() {
    const bool proto =
        text_.size() >= 2 && text_[0] == '\x80' && text_[1] >= '\2' && text_[1] <= '\5';
    int instructions = 0;
    bool whole = true;  // up to the window's end, nothing was wrong
    while (at_ < text_.size() && !stopped_) {
      if (!step()) {
        whole = cut_off_;
        break;
      }
      ++instructions;
    }
    PickleWalk walk;
    walk.imports = imports_;
    const bool calls =
        called_ && !imports_.empty();  // loading has run it by then, whatever follows
    walk.is_pickle = proto ? (instructions > kEnoughInstructions && whole) || calls ||
                                 (stopped_ && instructions > 1)
                           : calls || (stopped_ && !imports_.empty());
    return walk;
  }

 private:
  // `bytes` of argument, or nothing when the window ends first.
  std::optional<std::string_view> take(std::uint64_t bytes) {
    if (bytes > text_.size() - at_) {
      cut_off_ = true;
      return std::nullopt;
    }
    const std::string_view argument = text_.substr(at_, bytes);
    at_ += bytes;
    return argument;
  }

  std::optional<std::string_view> take_line() {
    const std::size_t end = text_.find('\n', at_);
    if (end == std::string_view::npos) {
      cut_off_ = true;
      return std::nullopt;
    }
    const std::string_view line = text_.substr(at_, end - at_);
    at_ = end + 1;
    return line;
  }

  std::optional<std::string_view> take_counted(int size_bytes) {
    const auto size = take(static_cast<std::uint64_t>(size_bytes));
    if (!size) return std::nullopt;
    std::uint64_t bytes = 0;
    for (std::size_t i = size->size(); i-- > 0;)
      bytes = bytes << 8 | static_cast<unsigned char>((*size)[i]);
    return take(bytes);
  }

  bool pop(std::size_t values) {
    if (depth_ < values + (marks_.empty() ? 0 : marks_.back())) return false;
    depth_ -= values;
    return true;
  }

  bool push() { return ++depth_ <= kMaxDepth; }

  bool pop_mark() {
    if (marks_.empty()) return false;
    depth_ = marks_.back();
    marks_.pop_back();
    return true;
  }

  void remember(std::string_view module, std::string_view name) {
    if (!imports_.empty()) return;
    imports_ =
        checkpoint::quote(std::string(module) + (name.empty() ? "" : " ") + std::string(name));
  }

  bool text_argument(std::optional<std::string_view> argument) {
    if (!argument) return false;
    before_last_text_ = last_text_;
    last_text_ = *argument;
    return push();
  }

  // Instructions by their letters in the pickle format: what follows the letter, and what the stack loses and gains.
  bool step() {
    switch (text_[at_++]) {
      case '.':  // STOP
        stopped_ = pop(1);
        return stopped_;
      case '\x80':  // PROTO
        return take(1).has_value();
      case '\x95':  // FRAME
        return take(8).has_value();
      case '(':
        marks_.push_back(depth_);
        return marks_.size() <= kMaxDepth;
      case '0':
        return pop(1) || pop_mark();
      case '1':
        return pop_mark();
      case '2':
        return pop(1) && push() && push();
      case 'I':
      case 'L':
      case 'F':  // numbers as text
        return number_line() && push();
      case 'S':
      case 'V':  // text to the line's end
        return text_argument(take_line());
      case 'P':  // persistent id
        if (!take_line()) return false;
        remember("a persistent id", "");
        return push();
      case 'N':
      case ']':
      case '}':
      case ')':
      case '\x88':
      case '\x89':
      case '\x8F':
        return push();
      case 'J':
        return take(4) && push();
      case 'K':
        return take(1) && push();
      case 'M':
        return take(2) && push();
      case 'G':
        return take(8) && push();
      case '\x8A':
        return take_counted(1) && push();
      case '\x8B':
        return take_counted(4) && push();
      case 'U':
      case 'C':
      case '\x8C':
        return text_argument(take_counted(1));
      case 'T':
      case 'B':
      case 'X':
        return text_argument(take_counted(4));
      case '\x8D':
      case '\x8E':
      case '\x96':
        return text_argument(take_counted(8));
      case '\x97':
        return push();
      case '\x98':
        return pop(1) && push();
      case 'g':
        return number_line() && push();
      case 'h':
        return take(1) && push();
      case 'j':
        return take(4) && push();
      case 'p':
        return number_line() && pop(1) && push();
      case 'q':
        return take(1) && pop(1) && push();
      case 'r':
        return take(4) && pop(1) && push();
      case '\x94':
        return pop(1) && push();
      case 'a':
      case 'b':
        return pop(2) && push();
      case 's':
        return pop(3) && push();
      case 'e':
      case 'u':
      case '\x90':
        return pop_mark() && pop(1) && push();
      case 'l':
      case 't':
      case 'd':
      case '\x91':
        return pop_mark() && push();
      case '\x85':
        return pop(1) && push();
      case '\x86':
        return pop(2) && push();
      case '\x87':
        return pop(3) && push();
      case 'R':
      case '\x81':
        if (!pop(2)) return false;
        called_ = true;
        return push();
      case '\x92':
        if (!pop(3)) return false;
        called_ = true;
        return push();
      case 'o':
        called_ = true;
        return pop_mark() && push();
      case 'Q':
        remember("a persistent id", "");
        return pop(1) && push();
      case '\x82':
        remember("an extension", "");
        return take(1) && push();
      case '\x83':
        remember("an extension", "");
        return take(2) && push();
      case '\x84':
        remember("an extension", "");
        return take(4) && push();
      case 'c':
        return global(false);
      case 'i':
        return global(true);
      case '\x93':  // the two texts on the stack
        remember(before_last_text_, last_text_);
        return pop(2) && push();
      default:
        return false;
    }
  }

  bool number_line() {
    const auto line = take_line();
    return line && line->size() < 4096 &&
           line->find_first_not_of("0123456789+-.eELnaifxX\r") == std::string_view::npos;
  }

  bool global(bool with_mark) {
    const auto module = take_line();
    if (!module) return false;
    const auto name = take_line();
    if (!name || module->empty() || name->empty()) return false;
    if (module->find_first_of(" \t") != std::string_view::npos ||
        name->find_first_of(" \t") != std::string_view::npos)
      return false;
    remember(*module, *name);
    if (with_mark) called_ = true;
    return (!with_mark || pop_mark()) && push();
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t depth_ = 0;
  std::vector<std::size_t> marks_;  // depths at which they stand
  bool stopped_ = false;
  bool cut_off_ = false;
  bool called_ = false;  // something was called
  std::string_view last_text_, before_last_text_;
  std::string imports_;
};

}  // namespace

PickleWalk walk_pickle(std::span<const std::byte> head) {
  return Walker({reinterpret_cast<const char*>(head.data()), head.size()}).run();
}

}  // namespace nibble::audit
